"""The policy's entropy over a run: collapse before the task is learnt, and explosion."""

from __future__ import annotations

from collections.abc import Iterator

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.lever import knob, option, recipe
from rolltree.doctor.run import CheckedRun
from rolltree.doctor.series import together

WINDOW = "steps over which means are taken; the first ones are the start"


@detector(
    "entropy_collapse",
    "The policy has become nearly certain of its tokens while it still fails: it has stopped exploring.",
    reads=("policy_entropy", "solved"),
    levers=(knob("dapo.clip_high", "clip-higher lets unlikely tokens rise"),
            option("temperature", "higher: sampling stays wide"), knob("grpo.kl", "pulls back to the reference"),
            recipe("aepo", "branches and updates with entropy in balance"), option("lr", "smaller steps")),
    knobs={"least": "share of the starting entropy", "worse": "the same, for critical",
           "solved": "share of right answers from which low entropy is fine", "window": WINDOW},
)  # fmt: skip
def entropy_collapse(
    run: CheckedRun, *, least: float = 0.2, worse: float = 0.05, solved: float = 0.8, window: int = 10
) -> Iterator[Symptom]:
    """Cui et al. 2025 (arXiv 2505.22617): entropy is spent for reward, and gone before the reward is had."""
    ratio, right = together(run.series("policy_entropy").relative(window), run.series("solved"))
    means, known = ratio.trailing(window), right.trailing(window)
    spell = means.spell((means.values < least) & (known.values < solved), -worse, -1.0)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"entropy has fallen to {spell.value:.0%} of its start (limit {least:.0%}) with fewer than {solved:.0%} "
            "of the answers right",
            {"policy_entropy.relative": spell.value, "least": least, "worse": worse, "solved": solved},
            (), spell.until,
        )  # fmt: skip


@detector(
    "entropy_explosion",
    "The policy is becoming noise: its entropy has risen far above where it started.",
    reads=("policy_entropy",),
    levers=(option("lr", "smaller steps"), knob("grpo.kl", "pulls back to the reference"),
            option("clip_norm", "bounds each update"), option("temperature", "lower")),
    knobs={"most": "multiple of the starting entropy", "worse": "the same, for critical", "window": WINDOW},
)  # fmt: skip
def entropy_explosion(run: CheckedRun, *, most: float = 1.8, worse: float = 3.0, window: int = 10) -> Iterator[Symptom]:
    """Entropy against the first steps."""
    spell = run.series("policy_entropy").relative(window).beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity, f"entropy has risen to {spell.value:.1f} times its start (limit {most:g})",
            {"policy_entropy.relative": spell.value, "most": most, "worse": worse}, (), spell.until,
        )  # fmt: skip
