"""What was found, as pages: one table of all evidence, and the section of a recipe's own page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from rolltree.compare.compare import differing
from rolltree.compare.names import COSTS, cost_name, is_share, row_name
from rolltree.compare.regimes import PREFIX, regime
from rolltree.compare.report import shown
from rolltree.compare.stats import Interval, rule_table
from rolltree.compare.void import acted
from rolltree.recipe.registry import list_recipes
from rolltree.recipe.stored import StoredNames
from studies.lab.brevity import RULE
from studies.lab.claim import Claim, claims
from studies.lab.entry import EvidenceEntry, question_of
from studies.lab.entry_family import FamilyVerdict, confirmed, counted, dropped, handed_on, together
from studies.lab.places import page_link
from studies.lab.systems import SYSTEMS

_HEAD = """\
# Evidence

What each recipe and each [system](systems.md) claims, measured against the baseline its card names. Written from
the stored entries by `python -m studies.lab.recipe_pages`; `rolltree evidence NAME` makes an entry, `rolltree evidence
NAME --verify` repeats a seed of it, and `rolltree evidence --confirm` asks what holds again on seeds from 2000 on
([shared with preregistered confirmations](../howto/evidence.md#on-fresh-seeds) of the same arms). In training both
sides start from the same policy, see the same prompts per seed and spend the same decoded tokens. The
policy is the embedded one; the [regimes](../howto/regimes.md) `tails`, `asked`, `planned`, `spoken` and `real` have
their own. The verdicts are about these tasks at this size, not about the models of the papers. `rolltree evidence
--list` says which entries stand with the code as it is.

Each table is one family: its intervals are paired t intervals whose ends stand where Holm's procedure puts them over
the whole table, at 95 % for all together, with variances that help one another (limma) where they are of the same
unit. p is one-sided, of what *holds* rejects; Holm's and Benjamini and Hochberg's (q) adjustments stand beside it.
Above means towards the claim: below, where less is claimed. Where equality is claimed, *holds* is an interval that lies
within ± x.

"""
_VOID = """
## Void

These experiments could not have answered what they ask, so they are no verdicts
([the rules](../howto/evidence.md#void)). The measured difference is theirs all the same.

"""


_DROPPED = """
## Tried and dropped

What entries said before they were asked something else, or made again with other code. A question that is asked until
it answers well answers nothing, so all that was asked is counted. Verdicts are today's rules on the numbers of then.

"""


def overview(entries: Sequence[EvidenceEntry]) -> str:
    """Every claim in one place: what was asked, what came out, what it cost, and what has not been run."""
    verdicts, cards = together(entries), {c.name: c for c in [*list_recipes(), *(s.card for s in SYSTEMS.values())]}
    void = [e for e in entries if verdicts[e.name].outcome == "void"]
    trained = [e for e in entries if e.kind == "training" and e not in void]
    checked = [e for e in entries if e.kind != "training"]
    stored = {e.name for e in entries}
    open_claims = [c for c in claims() if c.name not in stored]
    again, waiting = confirmed(entries), handed_on(entries, verdicts)
    told = ", ".join(f"{n} × {o}" for o, n in counted(verdicts).items() if o != "void") or "none yet"
    parts = [_HEAD, rule_table(), RULE, f"\n{len(entries)} entries, {len(void)} of them void. Verdicts: {told}.\n"]
    if trained:
        parts.append("\n## Training\n\n" + _table(
            ["recipe", "question", "recipe", "baseline", "difference", "p", "p (Holm)", "q (BH)", "pass@1, both",
             "acted", "verdict", "on fresh seeds"],
            ([_link(e), _asked(e), *_sides(e), *_tested(e, verdicts[e.name]), _also(e, "pass@1", share=True),
              acted(cards[e.name], e.results), verdicts[e.name].outcome, fresh_seeds(e.name, waiting, again)]
             for e in trained),
        ))  # fmt: skip
    if checked:
        parts.append("\n## Exact and simulated\n\n" + _table(
            ["recipe", "question", "recipe", "baseline", "difference", "p", "p (Holm)", "q (BH)", "acted", "verdict",
             "on fresh seeds"],
            ([_link(e), _asked(e), *_sides(e), *_tested(e, verdicts[e.name]),
              acted(cards[e.name], e.results, e.kind), verdicts[e.name].outcome,
              fresh_seeds(e.name, waiting, again)] for e in checked),
        ))  # fmt: skip
    if void:
        parts.append(_VOID + _table(
            ["recipe", "question", "difference", "why it is void"],
            ([_link(e), _asked(e), effect(e), e.words.removeprefix("void: ")] for e in void),
        ))  # fmt: skip
    if any(e.earlier for e in entries):
        parts.append(f"{_DROPPED}{dropped(entries)}\n\n" + _table(
            ["recipe", "asked before", "difference", "verdict then", "verdict now"],
            ([_link(e), _question(was.question, was.seeds), _span(was.effect, points=_in_points(e.kind, was.question)),
              was.outcome, verdicts[e.name].outcome] for e in entries for was in e.earlier),
        ))  # fmt: skip
    if open_claims:
        parts.append(
            "\n## Not measured yet\n\n" + "".join(f"- [{c.name}]({_page(c.name)}): {_open(c)}\n" for c in open_claims)
        )
    return "".join(parts)


def fresh_seeds(name: str, waiting: Collection[str], again: Mapping[str, FamilyVerdict]) -> str:
    """The verdict on fresh seeds, or that the screen hands it on and it was not asked yet."""
    return again[name].outcome if name in again else "not asked yet" if name in waiting else "–"


def _tested(entry: EvidenceEntry, verdict: FamilyVerdict) -> list[str]:
    """Difference with the interval its family leaves it, and p-values."""
    if verdict.found is None:
        return [effect(entry), "–", "–", "–"]
    found = verdict.found
    return [corrected_effect(entry, verdict), *(shown(p) for p in (found.p, found.p_holm, found.p_bh))]


def found(entry: EvidenceEntry | None) -> str:
    """The evidence section of a recipe's page."""
    if entry is None:
        return "Not measured yet. Nothing is claimed here beyond that the parts do what their tests say."
    rows = ([str(r.seed), f"{r.value:.4g}", f"{r.baseline:.4g}"] for r in entry.results)
    seeds = _table(["seed", entry.name, str(entry.question["baseline"])], rows)
    asked = f"**Question.** {_asked(entry)}." + (
        f" Knobs: `{' '.join(entry.question['settings'])}`." if entry.question["settings"] else ""
    )
    beside = [
        f"{name} {_also(entry, name, share=name.startswith('pass@'))}"
        for name in ("pass@1", "pass@8", "decoded_per_leaf", "unique", "seconds")
        if name != entry.question["metric"] and _also(entry, name)
    ]
    if entry.kind == "training" or entry.results[0].also:
        asked += f" Whether it acted: {acted(_names(entry).recipe(entry.name).card, entry.results, entry.kind)}."
    spent = [f"{cost_name(name)} {_also(entry, name)}" for name in COSTS if _also(entry, name)]
    costs = f"\n\nCosts of a run (means, recipe and baseline): {'; '.join(spent)}." if spent else ""
    fresh = f"\n\n**On fresh seeds**: {entry.confirmation.words}" if entry.confirmation is not None else ""
    could = f"\n\nWhere a difference could come from: {words}." if (words := _apart(entry)) else ""
    more = f"\n\nBeside it (means, recipe and baseline): {'; '.join(beside)}." if beside else ""
    said = f"{asked}\n\n**{entry.outcome}**: {entry.words}{fresh}\n\n{seeds}{could}{more}{costs}"
    return f"{said}\n\nRepeat it: `{entry.command}`"


def _apart(entry: EvidenceEntry) -> str:
    """What the recipe's side of a comparison of training runs has that its baseline's has not."""
    if entry.kind != "training":
        return ""
    from rolltree.compare.train_runner import TrainRunner

    names = _names(entry)
    names.plain(entry.question, "the question")
    claim = Claim(names.recipe(entry.name).card, question_of(entry))
    (told,) = differing(claim.sides(), claim.conditions(), TrainRunner())
    return told[1]


def _names(entry: EvidenceEntry) -> StoredNames:
    return StoredNames(f"the stored evidence of {entry.name}")


def corrected_effect(entry: EvidenceEntry, verdict: FamilyVerdict) -> str:
    """The difference with the interval that its family leaves it; its own where nothing is corrected."""
    return effect(entry, None if verdict.found is None else verdict.found.effect)


def effect(entry: EvidenceEntry, corrected: Interval | None = None) -> str:
    """The difference with its interval, its own or that of its family."""
    return _span(corrected or entry.effect, points=_in_points(entry.kind, entry.question))


def _span(e: Interval, *, points: bool) -> str:
    if e.low == e.high:
        return f"{e.estimate:.4g}"
    if points:
        return f"{100 * e.estimate:+.1f} points ({100 * e.low:+.1f} to {100 * e.high:+.1f})"
    return f"{e.estimate:+.3g} ({e.low:+.3g} to {e.high:+.3g})"


def _in_points(kind: str, question: Mapping[str, Any]) -> bool:
    return kind == "training" and is_share(str(question["metric"]))


def _asked(entry: EvidenceEntry) -> str:
    return _question(entry.question, len(entry.results))


def _question(q: Mapping[str, Any], seeds: int) -> str:
    than = f"{q['direction']} {q['metric']} than {q['baseline']}" + (f", by {q['least']:g}" if q["least"] else "")
    task, budget = str(q["task"]), int(q["budget"])
    if task.startswith(PREFIX):
        name = task.removeprefix(PREFIX)
        task, budget = f"regime [{name}](../howto/regimes.md)", regime(name).budget
    where = f", {task}" + (f" level {q['level']}" if q["level"] else "") + f", {budget // 1000}k tokens"
    return than + (where if q["task"] else "") + f", {seeds} seeds"


def _open(claim: Claim) -> str:
    q = claim.question
    return f"{q.direction} {q.metric} than {q.baseline}" + (f" on {q.task}" if q.task else "")


def _sides(entry: EvidenceEntry) -> list[str]:
    scale, unit = (100, " %") if _in_points(entry.kind, entry.question) else (1, "")
    sides = mean(r.value for r in entry.results), mean(r.baseline for r in entry.results)
    return [f"{scale * side:.3g}{unit}" for side in sides]


def _also(entry: EvidenceEntry, name: str, *, share: bool = False) -> str:
    pairs = [r.also[row_name(name)] for r in entry.results if row_name(name) in r.also]
    if not pairs:
        return ""
    sides = mean(a for a, _ in pairs), mean(b for _, b in pairs)
    return " / ".join(f"{100 * side:.0f} %" if share else f"{side:.3g}" for side in sides)


def _link(entry: EvidenceEntry) -> str:
    return f"[{entry.name}]({_page(entry.name)})"


def _page(name: str) -> str:
    return SYSTEMS[name].page if name in SYSTEMS else page_link(name)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
