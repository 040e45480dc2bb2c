"""Verdicts that follow what they must not: an answer's length, its place, or how sure the policy was of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.fix import knob, option, recipe, work
from rolltree.doctor.run import MOST_PLACES, CheckedRun, places
from rolltree.doctor.series import NotChecked
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.shape import Bools, Floats, Ints

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
