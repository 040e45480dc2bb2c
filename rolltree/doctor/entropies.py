"""The policy's entropy over a run: collapse before the task is learnt."""

from __future__ import annotations

from collections.abc import Iterator

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.fix import knob, option, recipe
from rolltree.doctor.run import CheckedRun
from rolltree.doctor.series import together

WINDOW = "steps over which means are taken; the first ones are the start"


@detector(
    "entropy_collapse",
    "The policy has become nearly certain of its tokens while it still fails: it has stopped exploring.",
    reads=("policy/entropy", "reward/solved"),
    fixes=(knob("dapo.clip_high", "clip-higher lets unlikely tokens rise"),
            option("temperature", "higher: sampling stays wide"), knob("grpo.kl", "pulls back to the reference"),
            recipe("aepo", "branches and updates with entropy in balance"), option("lr", "smaller steps")),
    knobs={"least": "share of the starting entropy", "worse": "the same, for critical",
           "solved": "share of right answers from which low entropy is fine", "window": WINDOW},
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
