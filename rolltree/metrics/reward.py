"""Outcomes and rewards: of rollouts, of the groups of one prompt, and whether the verifier says the same twice."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from rolltree.metrics.rollouts import SAME, Numbers, Rollouts
from rolltree.tree.shape import Bools, Floats, Ints

# A share of successes with its confidence interval.


@dataclass(frozen=True, slots=True)
class Rate:
    """A mean of shares with its 95 % interval."""

    value: float
    low: float
    high: float


def wilson(mean: float, units: float, z: float = 1.959964) -> Rate:
    """Wilson's score interval of a mean of shares over so many independent units.

    For shares per unit it is wider than need be, because p(1−p) bounds their variance; it is never empty at 0 or 1.
    """
    if units == 0:
        return Rate(math.nan, math.nan, math.nan)
    centre = (mean + z * z / (2 * units)) / (1 + z * z / units)
    half = z * math.sqrt(mean * (1 - mean) / units + z * z / (4 * units * units)) / (1 + z * z / units)
    return Rate(mean, max(0.0, centre - half), min(1.0, centre + half))


def difference(one: float, units: float, other: float, others: float, z: float = 1.959964) -> Rate:
    """The difference of two independent rates with the interval of Agresti and Caffo (2000).

    Each side is counted with one more success and one more failure. For two or three units a side it holds the truth
    where Newcombe's and Wald's intervals are too narrow; `units` may be effective numbers.
    """
    sides = [((rate * n + 1) / (n + 2), n + 2) for rate, n in ((one, units), (other, others))]
    middle = sides[0][0] - sides[1][0]
    half = z * math.sqrt(sum(p * (1 - p) / n for p, n in sides))
    return Rate(one - other, max(-1.0, middle - half), min(1.0, middle + half))


# What a second wave of attempts made of the first one: how much it broke, and how much it mended.

FIRST_WAVE, LAST_WAVE = "first_wave", "last_wave"
"""Keys in the scores of a tree's root: share of right attempts before anything was shown, and in the last wave."""


def waves(r: Rollouts) -> Numbers:
    """P(last wrong | first right) and P(last right | first wrong) over prompts that had both waves."""
    roots = r.parent < 0
    return regression(r.score(FIRST_WAVE)[roots], r.score(LAST_WAVE)[roots])


def regression(first: Floats, last: Floats) -> Numbers:
    """Both rates from shares of right attempts by prompt; with single attempts they are counts.

    An attempt of each wave is drawn: Σ aᵢ(1 − bᵢ)/Σ aᵢ and Σ (1 − aᵢ)bᵢ/Σ (1 − aᵢ). Left out where nobody was right
    at first, or wrong.
    """
    known = ~(np.isnan(first) | np.isnan(last))
    a, b = first[known], last[known]
    out: Numbers = {}
    if a.sum() > 0:
        out["reward/regressed"] = float((a * (1 - b)).sum() / a.sum())
    if (1 - a).sum() > 0:
        out["reward/mended"] = float(((1 - a) * b).sum() / (1 - a).sum())
    return out


NOT_PARTS = frozenset(
    {
        "reward",
        "outcome",
        "solved",
        "true_reward",
        "vote",
        "overlong",
        "step_reward",
        "advantage",
        "value",
        "prior",
        "judge",
    }
)
"""Scores of a leaf that are no components of its outcome."""


def outcomes(r: Rollouts) -> Numbers:
    """What the verifier said, how long rollouts are, how many were cut off or failed."""
    if not len(r.leaf):
        return {}
    out = {
        "rollout/truncated": float(r.is_("finish", "length")[r.leaf].mean()),
        "rollout/failed": float(r.is_("status", "failed")[r.leaf].sum()),
    }
    if not r.judged.any():
        return out
    judged = r.count(r.judged) > 0
    return out | {
        "reward/mean": float(r.outcome[r.judged].mean()),
        "reward/solved": float(r.solved[r.judged].mean()),
        "reward/zero_variance": float((r.spread(r.outcome, r.judged)[judged] <= SAME).mean()),
        "rollout/length": float(r.own[r.judged].mean()),
    }


def parts(r: Rollouts) -> Numbers:
    """Mean of what credit saw, and of each part of a reward that has several."""
    if not r.judged.any():
        return {}
    return {
        "reward/shaped": float(r.reward[r.judged].mean()),
        "reward/reshaped": float(np.abs(r.reward - r.outcome)[r.judged].mean()),
    } | {f"reward/part/{name}": value for name, value in each_part(r).items()}


def each_part(r: Rollouts) -> Numbers:
    """Mean of each part of the outcome over the judged rollouts, by the part's own name."""
    out: Numbers = {}
    for name in sorted(r.source.score_names() - NOT_PARTS):
        values = r.score(name)[r.leaf][r.judged]
        if np.isfinite(values).any():
            out[name] = float(np.nanmean(values))
    return out


def groups(r: Rollouts) -> Numbers:
    """Shares of the groups of two rollouts or more, and of the tokens they cost."""
    many = r.count(r.judged) >= 2
    if not many.any():
        return {}
    solved, wrong = all_solved(r), all_wrong(r)
    tokens = np.bincount(r.tree, r.length * r.trainable, len(many))
    out = {
        "reward/all_solved": float(solved[many].mean()),
        "reward/all_wrong": float(wrong[many].mean()),
        "reward/all_solved_tokens": float(tokens[solved].sum() / max(tokens.sum(), 1)),
        "reward/all_wrong_tokens": float(tokens[wrong].sum() / max(tokens.sum(), 1)),
    }
    trained = r.count(r.trained) >= 2
    if trained.any():
        out["reward/zero_variance_trained"] = float(zero_variance(r)[trained].mean())
    return out


def zero_variance(r: Rollouts) -> Bools:
    """Trees of which two leaves or more were trained on, all with the same reward."""
    return (r.count(r.trained) >= 2) & (r.spread(r.reward, r.trained) <= SAME)


def all_solved(r: Rollouts) -> Bools:
    """Trees all of whose two leaves or more are right."""
    return (r.count(r.judged) >= 2) & (r.count(r.solved) == r.count(r.judged))


def all_wrong(r: Rollouts) -> Bools:
    """Trees of two leaves or more without a right one, all with the same outcome."""
    alike = r.spread(r.outcome, r.judged) <= SAME
    return (r.count(r.judged) >= 2) & (r.count(r.solved) == 0) & alike


def verdicts(r: Rollouts) -> Numbers:
    """Of what stands more than once in a tree: the share of final answers that are right in one leaf and wrong in
    another, and of whole transcripts that got two outcomes."""
    found = {"reward/split_answers": split_answers(r)}
    if len(r.transcript):
        found["reward/split_transcripts"] = split_transcripts(r)
    out: Numbers = {}
    for name, (_, repeated, differ) in found.items():
        if repeated:
            out[name] = differ / repeated
    return out


Split = tuple[Bools, int, int]
"""Leaves whose key stands in their tree with two values; how many keys stand twice, how many of them differ."""


def split_answers(r: Rollouts) -> Split:
    """Final answers that are right in one leaf and wrong in another; rewards of length or form may differ."""
    return _split(r, r.answer, r.judged & (r.answer >= 0), r.solved.astype(np.float64))


def split_transcripts(r: Rollouts) -> Split:
    """Whole transcripts that got two outcomes."""
    return _split(r, r.transcript.view(np.int64), r.judged, r.outcome)


def _split(r: Rollouts, key: Ints, among: Bools, value: Floats) -> Split:
    split = np.zeros(len(r.leaf), np.bool_)
    rows = np.flatnonzero(among)
    if not len(rows):
        return split, 0, 0
    order = rows[np.lexsort((key[rows], r.leaf_tree[rows]))]
    new = (np.diff(r.leaf_tree[order]) != 0) | (np.diff(key[order]) != 0)
    at = np.concatenate([[0], np.flatnonzero(new) + 1])
    size = np.diff(np.append(at, len(order)))
    said = value[order]
    differ = np.maximum.reduceat(said, at) - np.minimum.reduceat(said, at) > SAME
    split[order[np.repeat(differ, size)]] = True
    return split, int((size > 1).sum()), int(differ.sum())


def vote(r: Rollouts) -> Numbers:
    """Where a majority is the label: its share of the votes, and how often the verifier calls it wrong."""
    votes = r.score("vote")[r.leaf]
    voted = np.isfinite(votes) & r.judged
    known = np.isfinite(r.mean(r.outcome, voted & (r.reward > 0.5)))
    if not known.any():
        return {}
    return {
        "reward/vote_share": float(np.nanmean(r.mean(votes, voted & (r.reward > 0.5)))),
        "reward/vote_wrong": float(wrong_majorities(r)[known].mean()),
    }


def judge(r: Rollouts) -> Numbers:
    """A judge's grades, and whether they tell what the verifier calls right from what it calls wrong."""
    grades = r.score("judge")[r.leaf]
    known = np.isfinite(grades) & r.judged
    if not known.any():
        return {}
    out = {"reward/judge": float(grades[known].mean())}
    good, bad = grades[known & r.solved], grades[known & ~r.solved]
    if len(good) and len(bad):
        above = np.searchsorted(np.sort(bad), good, "left") + np.searchsorted(np.sort(bad), good, "right")
        out["reward/judge_auc"] = float(above.mean() / 2 / len(bad))
    return out


def wrong_majorities(r: Rollouts) -> Bools:
    """Trees whose majority answer the verifier calls wrong."""
    voted = np.isfinite(r.score("vote")[r.leaf]) & r.judged & (r.reward > 0.5)
    return np.nan_to_num(r.mean(r.outcome, voted), nan=1.0) < 0.5
