"""Rollouts that are nearly the same, and shared prefixes that outweigh all else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom, knob, option, recipe
from rolltree.doctor.levels import DIFFER, longest
from rolltree.doctor.run import MOST_PLACES, CheckedRun, places
from rolltree.doctor.series import NotChecked, Series, together
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.table import Ints

# The policy's entropy over a run: collapse before the task is learnt.

ENTROPY_WINDOW = "steps over which means are taken; the first ones are the start"


@detector(
    "entropy_collapse",
    "The policy has become nearly certain of its tokens while it still fails: it has stopped exploring.",
    reads=("policy/entropy", "reward/solved"),
    fixes=(knob("dapo.clip_high", "clip-higher lets unlikely tokens rise"),
            option("temperature", "higher: sampling stays wide"), knob("grpo.kl", "pulls back to the reference"),
            recipe("aepo", "branches and updates with entropy in balance"), option("lr", "smaller steps")),
    knobs={"least": "share of the starting entropy", "worse": "the same, for critical",
           "solved": "share of right answers from which low entropy is fine", "window": ENTROPY_WINDOW},
)  # fmt: skip
def entropy_collapse(
    run: CheckedRun, *, least: float = 0.2, worse: float = 0.05, solved: float = 0.8, window: int = 10
) -> Iterator[Symptom]:
    """Cui et al. 2025 (arXiv 2505.22617): entropy is spent for reward, and gone before the reward is had."""
    ratio, right = together(run.series("policy/entropy").relative(window), run.series("reward/solved"))
    means, known = ratio.trailing(window), right.trailing(window)
    spell = means.spell((means.values < least) & (known.values < solved), -worse, -1.0)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"entropy has fallen to {spell.value:.0%} of its start (limit {least:.0%}) with fewer than {solved:.0%} "
            "of the answers right",
            {"policy/entropy.relative": spell.value, "least": least, "worse": worse, "solved": solved},
            (), spell.until,
        )  # fmt: skip


# How long answers are: drift over a run, and right against wrong.


@detector(
    "length_drift",
    "Answers have become much longer or shorter without more of them being right.",
    reads=("rollout/length", "reward/solved"),
    fixes=(recipe("dr_grpo", "divides by no length, so long wrong answers do not pay"),
            knob("dapo.overlong", "a soft penalty near the limit"), option("max_tokens", "a hard limit")),
    knobs={"most": "multiple of the starting length (and its inverse for shrinking)", "worse": "the same, for critical",
           "gain": "multiple of the starting share of right answers that excuses any length", "window": ENTROPY_WINDOW},
)  # fmt: skip
def length_drift(
    run: CheckedRun, *, most: float = 1.5, worse: float = 2.5, gain: float = 1.2, window: int = 10
) -> Iterator[Symptom]:
    """Length against the first steps, where accuracy has not risen along."""
    length, solved = together(run.series("rollout/length"), run.series("reward/solved"))
    ratio = length.relative(window).trailing(window)
    right = solved.trailing(window).on(ratio.steps).values
    stuck = right <= gain * max(solved.start(window), 1e-9)
    for sign, word in ((1.0, "longer"), (-1.0, "shorter")):
        grown = ratio.values if sign > 0 else 1 / np.maximum(ratio.values, 1e-9)
        turned = Series(ratio.name, ratio.steps, grown)
        spell = turned.spell((grown > most) & stuck, worse)
        if spell is not None:
            yield Symptom(
                spell.start, spell.severity,
                f"answers have become {spell.value:.1f} times {word} (limit {most:g}) and no more of them are right",
                {"rollout/length.relative": spell.value**sign, "most": most, "worse": worse, "gain": gain},
                run.show(spell, longest if sign > 0 else _shortest), spell.until,
            )  # fmt: skip


@detector(
    "length_bias",
    "Right and wrong answers of the same prompt differ greatly in length: length itself is being rewarded.",
    reads=("rollout/length_bias",),
    fixes=(recipe("dr_grpo", "divides by no length and no deviation"),
            recipe("dapo", "averages over tokens, not answers"),
            knob("dapo.overlong", "a soft penalty near the limit")),
    knobs={"most": "difference of mean lengths, as a share of the mean length", "worse": "the same, for critical",
           "window": ENTROPY_WINDOW},
)  # fmt: skip
def length_bias(run: CheckedRun, *, most: float = 0.6, worse: float = 1.2, window: int = 10) -> Iterator[Symptom]:
    """Dr. GRPO (arXiv 2503.20783): a mean per answer makes long wrong answers cheap."""
    bias = run.series("rollout/length_bias").trailing(window)
    size = Series(bias.name, bias.steps, np.abs(bias.values))
    spell = size.spell(size.values > most, worse)
    if spell is not None:
        which = "wrong" if bias.values[int(np.searchsorted(bias.steps, spell.start))] > 0 else "right"
        yield Symptom(
            spell.start, spell.severity,
            f"{which} answers are longer by {spell.value:.0%} of the mean length, prompt by prompt (limit {most:.0%})",
            {"rollout/length_bias": spell.value, "most": most, "worse": worse},
            run.show(spell, longest), spell.until,
        )  # fmt: skip


def _shortest(r: Rollouts) -> Ints:
    return r.leaf[np.argsort(r.own, kind="stable")]


@detector(
    "near_duplicates",
    "Wrong rollouts of a prompt say almost the same: their token n-grams overlap nearly whole.",
    reads=("forests",),
    fixes=DIFFER,
    knobs={"most": "share of leaves that have a near copy", "worse": "the same, for critical",
           "alike": "overlap (Jaccard) of n-grams that counts as a near copy", "gram": "tokens in an n-gram",
           "trees": "trees looked at, evenly spaced over the newest saved step"},
    live=False,
)  # fmt: skip
def near_duplicates(
    run: CheckedRun, *, most: float = 0.6, worse: float = 0.85, alike: float = 0.8, gram: int = 4, trees: int = 64
) -> Iterator[Symptom]:
    """Exact copies count too; leaves shorter than twice the n-gram are left out."""
    if not run.forests:
        raise NotChecked("no forests were saved; train with --forests-every above 0")
    step = max(run.forests)
    rollouts = run.rollouts(step)
    if not len(rollouts.transcript):
        raise NotChecked("the actions are not tokens")
    copies, looked = near_copies(rollouts, alike, int(gram), int(trees))
    share = len(copies) / looked if looked else 0.0
    if share > most:
        yield Symptom(
            step, "critical" if share > worse else "warning",
            f"{share:.0%} of the wrong rollouts have a near copy in their tree (limit {most:.0%})",
            {"share": share, "most": most, "worse": worse, "alike": alike, "leaves": float(looked)},
            places(step, rollouts, rollouts.leaf[copies[:MOST_PLACES]]),
        )  # fmt: skip


def near_copies(r: Rollouts, alike: float, gram: int, trees: int) -> tuple[Ints, int]:
    """Indices of leaves with a near copy in their tree, and how many leaves were looked at."""
    usable = r.wrong & (r.own >= 2 * gram)
    open_trees = np.flatnonzero(r.count(usable) >= 2)
    chosen = open_trees[np.unique(np.linspace(0, len(open_trees) - 1, min(trees, len(open_trees))).astype(int))]
    out: list[int] = []
    looked = 0
    for tree in chosen.tolist():
        rows = np.flatnonzero(usable & (r.leaf_tree == tree))
        grams = [_grams(r, int(r.leaf[i]), gram) for i in rows.tolist()]
        looked += len(rows)
        for i, mine in enumerate(grams):
            others = (g for j, g in enumerate(grams) if j != i)
            if any(len(mine & other) >= alike * len(mine | other) for other in others):
                out.append(int(rows[i]))
    return np.array(out, np.int64), looked


def _grams(r: Rollouts, row: int, gram: int) -> set[bytes]:
    """The n-grams of everything the policy wrote on the path to a node."""
    actions, at = r.ragged("actions")
    runs: list[np.ndarray] = []
    while row >= 0:
        if r.trainable[row]:
            runs.append(actions[at[row] : at[row + 1]])
        row = int(r.parent[row])
    tokens = np.concatenate(runs[::-1])
    return {tokens[i : i + gram].tobytes() for i in range(len(tokens) - gram + 1)}


@detector(
    "prefix_overweight",
    "Tokens shared by many leaves get most of the update: the trees' stems are trained, their ends hardly.",
    reads=("policy/prefix_pull", "policy/prefix_tokens"),
    fixes=(recipe("treeps_rag", "counts a shared token once"),
            knob("treepo.segment", "shorter stems")),
    knobs={"most": "share of the net pull |gain + loss| on shared tokens", "worse": "the same, for critical",
           "times": "how many times their share of the tokens that must be, too", "window": ENTROPY_WINDOW},
)  # fmt: skip
def prefix_overweight(
    run: CheckedRun, *, most: float = 0.6, worse: float = 0.85, times: float = 3.0, window: int = 10
) -> Iterator[Symptom]:
    """The same gradient as every path written out weighs a prefix by its leaves; this says what that amounts to."""
    pull, tokens = (
        s.trailing(window) for s in together(run.series("policy/prefix_pull"), run.series("policy/prefix_tokens"))
    )
    spell = pull.spell((pull.values > most) & (pull.values > times * tokens.values), worse)
    if spell is not None:
        at = int(np.searchsorted(tokens.steps, spell.start))
        yield Symptom(
            spell.start, spell.severity,
            f"{spell.value:.0%} of the update falls on the {tokens.values[at]:.0%} of the tokens that leaves share "
            f"(limit {most:.0%})",
            {"policy/prefix_pull": spell.value, "policy/prefix_tokens": float(tokens.values[at]), "most": most,
             "times": times, "worse": worse},
            run.show(spell, _stems), spell.until,
        )  # fmt: skip


def _stems(r: Rollouts) -> Ints:
    """Trained nodes with the most taught leaves below them."""
    count = r.below(r.trained) * r.trainable
    order = np.argsort(-count, kind="stable")
    return order[count[order] > 1]
