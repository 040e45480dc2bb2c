"""Data from another policy than the one in training: importance weights, age, and two programs that disagree."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.lever import correction, option, recipe
from rolltree.doctor.prompts import WINDOW
from rolltree.doctor.run import CheckedRun
from rolltree.train.rollouts import Rollouts
from rolltree.train.vitals import grafted, log_weights
from rolltree.tree.table import Ints

TRUNCATE = correction("tis", "truncates importance weights at 2")
FORGET = correction("m2po", "masks what is farthest off until the second moment is small")


@detector(
    "heavy_weights",
    "Few rollouts carry most of the importance weight: the update follows them and not the batch.",
    reads=("weight.ess", "weight.most"),
    levers=(
        TRUNCATE,
        correction("sequence_mis", "leaves out rollouts with a weight above 2"),
        option("temperature", "1 samples from the policy's own distribution"),
        recipe("gspo", "one ratio per sequence"),
    ),
    knobs={
        "least": "effective share of the rollouts, (Σw)²/(nΣw²)",
        "worse": "the same, for critical",
        "window": WINDOW,
    },
)
def heavy_weights(run: CheckedRun, *, least: float = 0.5, worse: float = 0.2, window: int = 10) -> Iterator[Symptom]:
    """Kish's effective sample size over whole rollouts."""
    spell = run.series("weight.ess").beyond(least, worse, window, below=True)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"the importance weights leave {spell.value:.0%} of the rollouts in effect (at least {least:.0%} expected)",
            {"weight.ess": spell.value, "least": least, "worse": worse}, run.show(spell, _heaviest), spell.until,
        )  # fmt: skip


@detector(
    "stale_rollouts",
    "Rollouts are trained on many versions after they were written.",
    reads=("lag.mean", "lag.most", "lag.stale"),
    levers=(FORGET, TRUNCATE, option("lr", "versions lie closer together"), option("epochs", "fewer passes a step")),
    knobs={"most": "versions behind, mean over trained tokens", "worse": "the same, for critical", "window": WINDOW},
)
def stale_rollouts(run: CheckedRun, *, most: float = 2.0, worse: float = 8.0, window: int = 10) -> Iterator[Symptom]:
    """One or two versions are harmless; beyond eight even decoupled objectives suffer (AReaL, arXiv 2505.24298)."""
    spell = run.series("lag.mean").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"trained tokens are {spell.value:.1f} versions behind on average (limit {most:g})",
            {"lag.mean": spell.value, "most": most, "worse": worse}, run.show(spell, _oldest), spell.until,
        )  # fmt: skip


@detector(
    "old_replay",
    "Replayed branches were written by weights long gone.",
    reads=("lag.replay_age", "lag.replayed"),
    levers=(FORGET, TRUNCATE, option("lr", "versions lie closer together")),
    knobs={"most": "versions behind, mean over grafted tokens", "worse": "the same, for critical", "window": WINDOW},
)
def old_replay(run: CheckedRun, *, most: float = 16.0, worse: float = 64.0, window: int = 10) -> Iterator[Symptom]:
    """The age of grafted branches."""
    if not run.series("lag.replayed").values.any():
        return
    spell = run.series("lag.replay_age").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"replayed tokens are {spell.value:.0f} versions old on average (limit {most:g})",
            {"lag.replay_age": spell.value, "most": most, "worse": worse},
            run.show(spell, lambda r: np.flatnonzero(r.is_("birth", "graft"))), spell.until,
        )  # fmt: skip


@detector(
    "engine_gap",
    "Engine and trainer do not compute the same policy, so on-policy data is off-policy without anybody deciding it.",
    reads=("gap_mean", "gap_max", "gap_over"),
    levers=(TRUNCATE, correction("mis", "leaves out tokens the two disagree about"),
            option("policy", "one precision for both sides")),
    knobs={"most": "mean |difference| of log-probs of tokens of the current weights", "worse": "the same, for critical",
           "window": WINDOW},
)  # fmt: skip
def engine_gap(run: CheckedRun, *, most: float = 0.01, worse: float = 0.05, window: int = 10) -> Iterator[Symptom]:
    """arXiv 2510.26788: mismatch of numerics between sampling and training."""
    spell = run.series("gap_mean").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"engine and trainer differ by {spell.value:.3g} nats per token at the same weights (limit {most:g})",
            {"gap_mean": spell.value, "most": most, "worse": worse}, (), spell.until,
        )  # fmt: skip


def _heaviest(r: Rollouts) -> Ints:
    found = np.nan_to_num(log_weights(r), nan=-np.inf)
    order = np.argsort(-found, kind="stable")
    return r.leaf[order[np.isfinite(found[order])]]


def _oldest(r: Rollouts) -> Ints:
    version, at = r.flat("version")
    known = np.flatnonzero((np.diff(at) > 0) & r.trainable & ~grafted(r))
    return known[np.argsort(version[at[known]], kind="stable")]
