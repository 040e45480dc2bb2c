"""A reward that rises for the wrong reason: held-out accuracy falls, or another measure of the same answers does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom, knob, option, recipe, work
from rolltree.doctor.run import MOST_PLACES, CheckedRun, leaves, places
from rolltree.doctor.series import NotChecked, Series, risen, together
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.shape import Bools, Floats, Ints

# Verdicts that follow what they must not: an answer's length, its place, or how sure the policy was of it.

SURE = 4.0
"""A correlation must be so many standard errors from zero, too."""
RECENT = 5
"""Saved steps that are looked at together."""
GATE = work("let the judge count only where an exact check of your reward does")
WEIGHT = option("reward", "a smaller weight for the judge, as in file.py:judge:0.2")
Pairs = Callable[[Rollouts], tuple[Floats, Floats, Ints, Bools]]


@detector(
    "judge_follows_length",
    "Of answers to one prompt that are equally right, the longer ones (or the shorter ones) get the better verdict.",
    reads=("forests",),
    fixes=(GATE, WEIGHT, knob("dapo.overlong", "a soft penalty near the limit")),
    knobs={"most": "size of the correlation within prompts", "worse": "the same, for critical"}, live=False,
)  # fmt: skip
def judge_follows_length(run: CheckedRun, *, most: float = 0.5, worse: float = 0.8) -> Iterator[Symptom]:
    """Pearson's correlation of verdict and length, each less its mean over the equally right answers of its prompt.

    A verdict of right and wrong alone has no such answers that differ, and is never found; so is a reward that was
    shaped by length after the verdict.
    """

    def pairs(r: Rollouts) -> tuple[Floats, Floats, Ints, Bools]:
        return r.outcome, r.own.astype(np.float64), 2 * r.leaf_tree + r.solved, r.judged

    yield from _symptom(run, pairs, most, worse, "length", "longer", "shorter")


@detector(
    "judge_follows_position",
    "Verdicts depend on an answer's place in its group, although answers of a flat group are drawn alike.",
    reads=("forests",),
    fixes=(recipe("brpo", "compares answers in both orders"), GATE, WEIGHT),
    knobs={"most": "size of the correlation within prompts", "worse": "the same, for critical"}, live=False,
)  # fmt: skip
def judge_follows_position(run: CheckedRun, *, most: float = 0.3, worse: float = 0.6) -> Iterator[Symptom]:
    """The same of verdict and place, over groups without forks. A control that stops at a success looks alike."""

    def pairs(r: Rollouts) -> tuple[Floats, Floats, Ints, Bools]:
        place = np.arange(len(r.leaf), dtype=np.float64)
        counts = r.count(r.all)
        return r.outcome, place, r.leaf_tree, r.judged & (_stems(r) == counts)[r.leaf_tree]

    yield from _symptom(run, pairs, most, worse, "place in the group", "later", "earlier")


@detector(
    "judge_follows_confidence",
    "Of answers to one prompt that are equally right, those the policy was surer of get the better verdict.",
    reads=("forests",),
    fixes=(GATE, WEIGHT),
    knobs={"most": "size of the correlation within prompts", "worse": "the same, for critical"}, live=False,
)  # fmt: skip
def judge_follows_confidence(run: CheckedRun, *, most: float = 0.5, worse: float = 0.8) -> Iterator[Symptom]:
    """The same of verdict and mean log-prob of a rollout's own tokens. Such a judge tells the policy what it thinks
    already, and training on it sharpens without teaching; a judge that reads likelihoods is found by definition."""

    def pairs(r: Rollouts) -> tuple[Floats, Floats, Ints, Bools]:
        logp, _ = r.ragged("logp")
        if not np.isfinite(logp).any():
            raise NotChecked("no log-probs were recorded")
        sums = np.where(r.trainable, r.per_node("logp", np.nan_to_num(logp.astype(np.float64))), 0.0)
        sure = r.down(sums)[r.leaf] / np.maximum(r.own, 1)
        return r.outcome, sure, 2 * r.leaf_tree + r.solved, r.judged & (r.own > 0)

    yield from _symptom(run, pairs, most, worse, "policy's confidence", "surer", "less sure")


def _stems(r: Rollouts) -> Ints:
    """Per tree, how many branches leave its root."""
    top = (r.parent >= 0) & (r.parent[np.maximum(r.parent, 0)] < 0)
    return np.bincount(r.tree[top], minlength=r.trees)


def _symptom(
    run: CheckedRun, pairs: Pairs, most: float, worse: float, what: str, high: str, low: str
) -> Iterator[Symptom]:
    if not run.forests:
        raise NotChecked("no forests were saved; train with --forests-every above 0")
    steps = sorted(run.forests)[-RECENT:]
    sums, free, differ = np.zeros(3), 0, 0
    for step in steps:
        x, y, groups, used = pairs(run.rollouts(step))
        dx, dy, count, moved = _centred(x[used], y[used], groups[used])
        sums += [float((dx * dy).sum()), float((dx * dx).sum()), float((dy * dy).sum())]
        free, differ = free + count, differ + moved
    if free < 8 or sums[1] <= 0 or sums[2] <= 0:
        raise NotChecked("no two answers that should be judged alike got different verdicts")
    size = float(sums[0] / np.sqrt(sums[1] * sums[2]))
    if abs(size) > most and abs(size) * np.sqrt(free) >= SURE:
        r = run.rollouts(steps[-1])
        x, y, groups, used = pairs(r)
        yield Symptom(
            steps[-1], "critical" if abs(size) > worse else "warning",
            f"the verdict follows the {what}: {high if size > 0 else low} answers of a prompt are judged better "
            f"(correlation {size:+.2f}, limit {most:g})",
            {"correlation": size, "most": most, "worse": worse, "answers": float(differ)},
            places(steps[-1], r, r.leaf[used][np.argsort(-x[used], kind="stable")][:MOST_PLACES]),
        )  # fmt: skip


def _centred(x: Floats, y: Floats, groups: Ints) -> tuple[Floats, Floats, int, int]:
    """Both less their means over each group in which the verdicts differ; degrees of freedom left, and how many."""
    _, at = np.unique(groups, return_inverse=True)
    count = np.maximum(np.bincount(at), 1)
    dx, dy = (v - (np.bincount(at, v) / count)[at] for v in (x, y))
    spread = np.bincount(at, dx * dx)[at] > 1e-12
    used = spread & (np.bincount(at, dy * dy)[at] > 0)
    left = int(used.sum()) - len(np.unique(at[used]))
    return dx[used], dy[used], max(left - 1, 0), int(used.sum())


WINDOW = "steps over which means are taken; the first ones are the start"
RESTRAIN = (knob("grpo.kl", "pulls back to the reference"), option("lr", "smaller steps"))
STERR = 3.0
"""A difference must be so many standard errors, too."""


@detector(
    "held_out_falls",
    "Reward in training rises while accuracy on held-out items falls: the reward is being gamed, or memorised.",
    reads=("eval/pass@1", "reward/shaped"),
    fixes=(*RESTRAIN, option("eval_items", "narrower intervals"),
            work("let parts of your reward count only where an independent one does")),
    knobs={"rise": "rise of the training reward meanwhile", "window": "steps over which the reward is averaged"},
)  # fmt: skip
def held_out_falls(run: CheckedRun, *, rise: float = 0.02, window: int = 10) -> Iterator[Symptom]:
    """An evaluation whose 95 % interval lies below an earlier one's."""
    low, high, rate = together(*(run.evals(n) for n in ("eval/pass@1_low", "eval/pass@1_high", "eval/pass@1")))
    reward = run.series("reward/shaped")
    if len(rate) < 2:
        raise NotChecked(f"a fall needs two evaluations, there are {len(rate)}")
    best = np.maximum.accumulate(low.values)
    fallen = high.values < best
    found: list[tuple[int, int]] = []
    for i in np.flatnonzero(fallen).tolist():
        j = int(np.argmax(low.values[:i]))
        if _near(reward, int(rate.steps[i]), window) - _near(reward, int(rate.steps[j]), window) >= rise:
            found.append((j, i))
    if found:
        j, i = found[-1]
        over = i != len(rate) - 1
        grown = _near(reward, int(rate.steps[i]), window) - _near(reward, int(rate.steps[j]), window)
        yield Symptom(
            int(rate.steps[i]), "note" if over else "critical",
            f"held-out pass@1 fell from {rate.values[j]:.1%} (step {rate.steps[j]}) to {rate.values[i]:.1%} while the "
            f"reward in training rose by {grown:.3f} (limit {rise:g})",
            {"eval/pass@1.before": float(rate.values[j]), "eval/pass@1": float(rate.values[i]),
             "reward/shaped.rise": grown, "rise": rise},
            (), int(rate.steps[i]) if over else None,
        )  # fmt: skip


def _near(s: Series, step: int, window: int) -> float:
    """The mean of the last points up to a step, or of the first ones where none precede it."""
    before = s.values[s.steps <= step][-window:]
    return float((before if len(before) == min(window, len(s)) else s.values[:window]).mean())


@detector(
    "proxy_reward",
    "What credit sees rises while the verifier's outcome, or a part of it, falls.",
    reads=("reward/shaped", "reward/mean", "reward/solved", "reward/part/<part>"),
    fixes=(work("let parts of your reward count only where an independent one does"),
            option("reward", "a smaller weight for the part that is gamed, as in file.py:part:0.1"), *RESTRAIN),
    knobs={"rise": "rise of what credit sees", "fall": "fall of the outcome or of a part", "window": WINDOW},
)  # fmt: skip
def proxy_reward(run: CheckedRun, *, rise: float = 0.05, fall: float = 0.05, window: int = 10) -> Iterator[Symptom]:
    """Both differences to the first steps, and each beyond three standard errors."""
    taught = run.series("reward/shaped")
    worst: tuple[float, str, int, int | None, float] | None = None
    for name in ("reward/mean", "reward/solved", *run.names("reward/part/")):
        seen, other = together(taught, run.series(name))
        up, up_noise = risen(seen, window)
        down, down_noise = risen(other, window)
        # Counts (calls, attempts) may fall as a policy learns; a part is a share.
        share = float(other.values.min()) >= 0 and float(other.values.max()) <= 1
        bad = (up >= np.maximum(rise, STERR * up_noise)) & (-down >= np.maximum(fall, STERR * down_noise)) & share
        spell = Series(name, seen.steps[2 * window - 1 :][-len(up) :], -down).spell(bad, np.inf)
        if spell is not None and (worst is None or spell.value > worst[0]):
            worst = spell.value, name, spell.start, spell.until, float(up.max())
    if worst is not None:
        fell, name, start, until, rose = worst
        yield Symptom(
            start, "warning" if until is None else "note",
            f"what credit sees rose by {rose:.3f} while {name} fell by {fell:.3f} (limits {rise:g} and {fall:g})",
            {"reward/shaped.rise": rose, f"{name}.fall": fell, "rise": rise, "fall": fall}, (), until,
        )  # fmt: skip


@detector(
    "form_over_substance",
    "A part of the reward rises and lifts it, while no more answers are right: form is being learnt, not the task.",
    reads=("reward/part/<part>", "reward/shaped", "reward/solved"),
    fixes=(work("let form count only where the answer does, in your reward"),
            option("reward", "a smaller weight for form, as in file.py:form:0.1"), option("level", "an easier task")),
    knobs={"rise": "rise of the part", "lift": "rise of the whole reward", "flat": "most that the share of right "
           "answers may have risen", "window": WINDOW},
)  # fmt: skip
def form_over_substance(
    run: CheckedRun, *, rise: float = 0.2, lift: float = 0.05, flat: float = 0.02, window: int = 15
) -> Iterator[Symptom]:
    """Rewards of several parts (`rolltree.filter.shaping`); silent where the reward is the outcome alone."""
    names = run.names("reward/part/")
    if not names:
        raise NotChecked("the outcome has no parts")
    for name in names:
        one, taught, solved = together(run.series(name), run.series("reward/shaped"), run.series("reward/solved"))
        up, noise = risen(one, window)
        whole, right = risen(taught, window)[0], risen(solved, window)[0]
        bad = (up >= np.maximum(rise, STERR * noise)) & (whole >= lift) & (right <= flat)
        spell = Series(name, one.steps[-len(up) :], up).spell(bad, np.inf)
        if spell is not None:
            yield Symptom(
                spell.start, spell.severity,
                f"{name} rose by {spell.value:.2f} and the reward with it, but no more answers are right",
                {f"{name}.rise": spell.value, "rise": rise, "lift": lift, "flat": flat},
                run.show(spell, lambda r: leaves(r, r.judged & ~r.solved)), spell.until,
            )  # fmt: skip
