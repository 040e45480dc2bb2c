"""Rollouts that are nearly the same, and shared prefixes that outweigh all else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.fix import knob, recipe
from rolltree.doctor.level import WINDOW
from rolltree.doctor.levels import DIFFER
from rolltree.doctor.run import MOST_PLACES, CheckedRun, places
from rolltree.doctor.series import NotChecked, together
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.table import Ints


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
           "times": "how many times their share of the tokens that must be, too", "window": WINDOW},
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
