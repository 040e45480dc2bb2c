"""Evidence: what a card claims, measured by this code, stored with all that is needed to repeat it.

An entry is written by running the claim, never by hand: `verify` repeats one of its seeds and compares. An entry
*stands* while the claim and the code it rests on are the ones it was made with; `problems` says why one does not.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from rolltree.compare.compare import Comparison, compare
from rolltree.compare.contrast import HARD
from rolltree.compare.curves import LAST, endpoint
from rolltree.compare.names import COSTS, held_out, is_share, of_rollouts
from rolltree.compare.report import versions
from rolltree.compare.runner import Runner, Shelf
from rolltree.compare.sources import changed
from rolltree.compare.stats import Interval, StatedVerdict, describe, paired_interval
from rolltree.compare.stats.paired import t_quantile
from rolltree.compare.trace import LabError
from rolltree.compare.void import idle, reasons
from rolltree.console import Terminal
from rolltree.recipe.recipe import Card, Evidence
from studies.lab.brevity import at_equal_accuracy
from studies.lab.claim import Claim
from studies.lab.entry import Confirmation, EarlierAnswer, EvidenceEntry, SeedResult, question_of
from studies.lab.entry_family import AHEAD
from studies.lab.kept import KeptShelf

FRESH = 2000
"""The first seed of a confirmation: screens count from 0, calibrations use 1000 and 1001."""
FRESH_SEEDS = {"training": 14, "simulated": 24}
"""Fresh seeds that a claim is asked again on, at least: a check is cheap, and no other's variance helps it."""
EARLY = 5
"""Points of its curves that a repeated run must have in common with the stored one before rounding may part them."""


@dataclass(frozen=True)
class Repeat:
    """What came of repeating one seed."""

    seed: int
    reproduced: bool
    words: str


def measure(
    claim: Claim, runner: Runner, cache: Path, console: Console | None = None, kept: Path | None = None
) -> EvidenceEntry:
    """Run a claim's experiment and judge it. Finished training runs are found again, those of a regime also where they
    are `kept`, so that they are shared with the tables."""
    started = time.monotonic()
    results = _results(claim, range(claim.question.seeds), _shelf(claim, runner, cache, kept), console)
    effect, said = judged(claim.card, claim.question, claim.kind, results)
    return EvidenceEntry(
        name=claim.name,
        title=claim.card.title,
        paper=claim.card.paper,
        claim=claim.card.claim,
        kind=claim.kind,
        question=_plain_question(claim),
        results=tuple(results),
        effect=effect,
        outcome=said.outcome,
        words=said.words,
        sources=claim.sources(),
        versions=dict(versions()),
        command=f"rolltree evidence {claim.recipe}",
        seconds=round(time.monotonic() - started, 1),
    )


def following(card: Card, made: EvidenceEntry, before: EvidenceEntry | None) -> EvidenceEntry:
    """The entry that takes the place of another: what that one said is kept, unless this one says the very same."""
    if before is None:
        return made
    now, then = [*map(_values, made.results)], [*map(_values, before.results)]
    alike = _placeless(made.question) == _placeless(before.question) and len(now) == len(then)
    same = alike and np.allclose(now, then, rtol=1e-6, atol=1e-12)
    return replace(made, earlier=before.earlier if same else (*before.earlier, earlier_answer(card, before)))


def earlier_answer(card: Card, entry: EvidenceEntry) -> EarlierAnswer:
    """What an entry said, by today's rules, about the question it was made for."""
    _, said = judged(card, question_of(entry), entry.kind, entry.results)
    return EarlierAnswer(entry.question, len(entry.results), entry.effect, said.outcome)


def _values(result: SeedResult) -> tuple[int, float, float]:
    return result.seed, result.value, result.baseline


def confirm(
    claim: Claim, entry: EvidenceEntry, runner: Runner, cache: Path, console: Console | None = None,
    kept: Path | None = None,
) -> EvidenceEntry:  # fmt: skip
    """The entry with its claim asked again on fresh seeds. Only what could be ahead, stands and has randomness can."""
    if entry.outcome not in AHEAD or claim.kind == "exact":
        why = "it is exact" if claim.kind == "exact" else f"its verdict is {entry.outcome!r}"
        raise LabError(f"nothing of {claim.name!r} waits to be confirmed: {why}")
    if wrong := problems(claim, entry):
        raise LabError(f"only evidence that stands can be confirmed; {wrong[0]}")
    started = time.monotonic()
    n = max(claim.question.seeds, FRESH_SEEDS[claim.kind])
    results = _results(claim, range(FRESH, FRESH + n), _shelf(claim, runner, cache, kept), console)
    effect, said = judged(claim.card, claim.question, claim.kind, results)
    took = round(time.monotonic() - started, 1)
    if claim.kind != "training":  # where something learned is read off the curves; those of checks are drawn once
        results = [replace(one, curves={}) for one in results]
    return replace(entry, confirmation=Confirmation(tuple(results), effect, said.outcome, said.words, took))


def _shelf(claim: Claim, runner: Runner, cache: Path, kept: Path | None) -> Shelf:
    return KeptShelf(cache, runner, kept=kept) if kept is not None and claim.regime else Shelf(cache, runner)


def verify(claim: Claim, entry: EvidenceEntry, runner: Runner, seed: int | None = None) -> Repeat:
    """Repeat one seed from nothing and compare with what is stored.

    Under the same libraries and on the same kind of machine the numbers must be the same. Rounding may send a training
    run down another path: elsewhere from the start, here where trees fork or environments answer while others write,
    because what stands in a batch together then depends on time. Such a run must begin with the very numbers that are
    stored, or be made elsewhere, and its effect must lie where one more seed would with 99 % confidence.
    """
    results = {r.seed: r for r in entry.results}
    chosen = min(results) if seed is None else seed
    if chosen not in results:
        return Repeat(chosen, False, f"seed {chosen} is not in the stored evidence, which has {sorted(results)}")
    with tempfile.TemporaryDirectory() as fresh:
        new = _results(claim, [chosen], Shelf(Path(fresh), runner), Terminal(quiet=True))[0]
    old = results[chosen]
    told = f"seed {chosen}: {_pair(new)}; stored {_pair(old)}"
    if np.allclose((new.value, new.baseline), (old.value, old.baseline), rtol=1e-6, atol=1e-12):
        return Repeat(chosen, True, f"reproduced, {told}")
    same, all_ = agreeing(new, old)
    here = dict(versions()) == dict(entry.versions)
    if claim.kind != "training" or (here and not EARLY <= same < all_):
        return Repeat(chosen, False, f"not reproduced, {told}")
    low, high = _one_more(entry)
    inside = low <= new.value - new.baseline <= high
    where = "within" if inside else "outside"
    why = f"the first {same} of {all_} points are the same and rounding parts the rest" if here else "other libraries"
    return Repeat(chosen, inside, f"{why}: {where} what one more seed would give, {told}")


def agreeing(new: SeedResult, old: SeedResult) -> tuple[int, int]:
    """How many points the curves of both have in common from their beginning on, and how many there are: the fewest."""
    found: list[tuple[int, int]] = []
    for name, (x, y) in old.curves.items():
        there = new.curves.get(name, ([], []))
        pairs = [*zip(zip(x, y, strict=True), zip(*there, strict=True), strict=False)]
        apart = (i for i, (a, b) in enumerate(pairs) if not np.allclose(a, b, rtol=1e-6, atol=1e-12, equal_nan=True))
        found.append((next(apart, len(pairs)), len(x)))
    return min(found, default=(0, 0))


def problems(claim: Claim, entry: EvidenceEntry | None) -> list[str]:
    """Why stored evidence does not stand; empty when it does."""
    if entry is None:
        return [f"{claim.name}: no evidence is stored; run `rolltree evidence {claim.name}`"]
    return [*stale(claim, entry), *forged(claim, entry)]


def stale(claim: Claim, entry: EvidenceEntry) -> list[str]:
    """What has changed since an entry was made: the card's question, or the code. A release check, not a test."""
    again = f"run `rolltree evidence {claim.name}` again"
    out: list[str] = []
    if fields := _asked_otherwise(claim, entry):
        out.append(f"{claim.name}: the card now asks something else ({', '.join(fields)}); {again}")
    if names := changed(entry.sources, claim.sources()):
        out.append(
            f"{claim.name}: its evidence was made with other code ({_few(names)} changed); {again}, or "
            f"`rolltree evidence {claim.name} --verify`, which accepts the new code if a seed gives the same numbers"
        )
    return out


def _few(names: Sequence[str], most: int = 3) -> str:
    """The first of them by name, and how many more."""
    named, rest = ", ".join(names[:most]), len(names) - most
    return named if rest <= 0 else f"{named} and {rest} more"


def forged(claim: Claim, entry: EvidenceEntry) -> list[str]:
    """Whether the verdict is that of the runs it stands beside, as far as the card still asks what was asked."""
    if _asked_otherwise(claim, entry):
        return []
    said_of = [(entry.results, entry.effect, entry.outcome, entry.words)]
    if (again := entry.confirmation) is not None:
        said_of.append((again.results, again.effect, again.outcome, again.words))
    return [wrong for of in said_of for wrong in _forged(claim, *of)]


def _forged(claim: Claim, results: Sequence[SeedResult], stored: Interval, outcome: str, words: str) -> list[str]:
    effect, said = judged(claim.card, claim.question, claim.kind, results)
    # The last digits of an interval belong to the library that made it.
    numbers = [(e.estimate, e.low, e.high) for e in (effect, stored)]
    if np.allclose(*numbers, rtol=1e-9, atol=1e-12) and (said.outcome, said.words) == (outcome, words):
        return []
    again = f"run `rolltree evidence {claim.name}` again"
    return [f"{claim.name}: the stored verdict is not that of the stored runs ({said.words}); {again}"]


def accept(claim: Claim, entry: EvidenceEntry) -> EvidenceEntry:
    """The entry under the code that stands now: only after `verify` found the same numbers with it."""
    return replace(entry, sources=claim.sources())


def _results(claim: Claim, seeds: Sequence[int], shelf: Shelf, console: Console | None) -> list[SeedResult]:
    if claim.kind != "training":
        made = [(seed, claim.check()(seed)) for seed in seeds]
        return [
            SeedResult(s, float(m.value), float(m.baseline), dict(m.curves), {n: (v, 0.0) for n, v in m.acted.items()})
            for s, m in made
        ]
    baseline, recipe = claim.sides()
    done = compare(
        (baseline, recipe),
        claim.conditions(),
        seeds,
        shelf,
        metric=claim.question.metric,
        console=console,
    )
    if len(done.seeds) < len(seeds):
        raise KeyboardInterrupt
    name = done.metric.removesuffix(" area").removesuffix(HARD)
    out: list[SeedResult] = []
    for seed in done.seeds:
        learned: dict[str, tuple[float, float]] = {}
        curves: dict[str, tuple[list[float], list[float]]] = {}
        for trace in done.traces:
            if trace.seed == seed:
                x, y = trace.curve(name)
                curves[trace.label] = (x.tolist(), y.tolist())
                learned[trace.label] = (float(trace.curve("pass@1")[1][0]), endpoint(trace, "pass@1"))
        values = done.headline[recipe.label].per_seed[seed], done.headline[baseline.label].per_seed[seed]
        out.append(SeedResult(seed, *values, curves, _also(claim.card, done, seed), learned))
    return out


def _also(card: Card, done: Comparison, seed: int) -> dict[str, tuple[float, float]]:
    """Other numbers of a seed's two runs, where both measured them."""
    baseline, recipe = (next(t for t in done.of(arm.label) if t.seed == seed) for arm in done.arms)
    budget, out = done.conditions.budget, dict[str, tuple[float, float]]()
    there = set(baseline.metrics())
    for name in recipe.metrics():
        if held_out(name):
            if name not in there:
                continue  # a kept run of before it was kept
            out[name] = (endpoint(recipe, name, budget), endpoint(baseline, name, budget))
        elif of_rollouts(name):
            ours, theirs = recipe.mean(name), baseline.mean(name)
            if ours is not None and theirs is not None:
                out[name] = (ours, theirs)
    if card.counter is not None and (acted := recipe.mean(card.counter.metric)) is not None:
        beside = baseline.mean(card.counter.metric)
        out[card.counter.metric] = (acted, card.counter.rest if beside is None else beside)
    for name in COSTS:
        ours, theirs = recipe.total(name), baseline.total(name)
        if ours is not None and theirs is not None:
            out[name] = (ours, theirs)
    return out | {"seconds": (recipe.cost("seconds"), baseline.cost("seconds"))}


def judged(
    card: Card, asked: Evidence, kind: str, results: Sequence[SeedResult]
) -> tuple[Interval, StatedVerdict]:  # fmt: skip
    """The effect and the verdict of stored runs; of runs that could not have answered, *void* with the reasons."""
    values, against = [r.value for r in results], [r.baseline for r in results]
    if kind == "exact":
        difference = values[0] - against[0]
        effect = Interval(difference, difference, difference, 1.0, "exact", 1)
    else:
        effect = paired_interval(values, against)
    if why := reasons(card, asked, results) if kind == "training" else idle(results):
        return effect, StatedVerdict("void", f"void: {'; '.join(why)}")
    points = kind == "training" and is_share(asked.metric)
    said = describe(
        effect, subject=card.name, baseline=asked.baseline, metric=asked.metric, direction=asked.direction,
        least=asked.least, unit="points" if points else "",
    )  # fmt: skip
    return effect, at_equal_accuracy(said, asked, results)


def rejudged(claim: Claim, entry: EvidenceEntry) -> EvidenceEntry:
    """The entry with the verdict that today's rules give its stored runs, under the question they were made for.

    Runs of a question that the card no longer asks are no verdict on what it claims.
    """
    asked = question_of(entry)
    results = tuple(_learned(r) if asked.metric.removesuffix(" area") == "pass@1" else r for r in entry.results)
    effect, said = judged(claim.card, asked, entry.kind, results)
    if fields := _asked_otherwise(claim, entry):
        why = f"the card now asks something else ({', '.join(fields)})"
        said = StatedVerdict("void", f"{said.words}; {why}" if said.outcome == "void" else f"void: {why}")
    return replace(entry, results=results, effect=effect, outcome=said.outcome, words=said.words)


def _learned(result: SeedResult) -> SeedResult:
    """With the ends of its held-out curves, which entries of before did not store apart."""
    if result.learned:
        return result
    ends = {label: (y[0], float(np.mean(y[-LAST:]))) for label, (_, y) in result.curves.items()}
    return replace(result, learned=ends)


def _pair(result: SeedResult) -> str:
    return f"{result.value:.6g} against {result.baseline:.6g}"


def _one_more(entry: EvidenceEntry) -> tuple[float, float]:
    """Where the effect of one more seed lies with 99 % confidence: mean ± t · s · √(1 + 1/n)."""
    d = np.asarray([r.value - r.baseline for r in entry.results])
    if len(d) < 2:
        return float(d[0]), float(d[0])
    half = t_quantile(0.995, len(d) - 1) * float(d.std(ddof=1)) * (1 + 1 / len(d)) ** 0.5
    return float(d.mean()) - half, float(d.mean()) + half


def _asked_otherwise(claim: Claim, entry: EvidenceEntry) -> list[str]:
    then, now = _placeless(entry.question), _placeless(_plain_question(claim))
    return sorted(k for k in {*then, *now} if then.get(k) != now.get(k))


def _placeless(question: Mapping[str, Any]) -> dict[str, Any]:
    """A question with its check by name alone: where that lies decides nothing, and its code has hashes of its own."""
    return {**question, "check": str(question.get("check", "")).rpartition(":")[2]}


def _plain_question(claim: Claim) -> dict[str, Any]:
    made = asdict(claim.question)
    return made | {"settings": list(claim.question.settings)}
