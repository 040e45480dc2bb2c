"""How long answers are: drift over a run, and right against wrong."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.fix import knob, option, recipe
from rolltree.doctor.level import WINDOW
from rolltree.doctor.levels import longest
from rolltree.doctor.run import CheckedRun
from rolltree.doctor.series import Series, together
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.table import Ints


@detector(
    "length_drift",
    "Answers have become much longer or shorter without more of them being right.",
    reads=("rollout/length", "reward/solved"),
    fixes=(recipe("dr_grpo", "divides by no length, so long wrong answers do not pay"),
            knob("dapo.overlong", "a soft penalty near the limit"), option("max_tokens", "a hard limit")),
    knobs={"most": "multiple of the starting length (and its inverse for shrinking)", "worse": "the same, for critical",
           "gain": "multiple of the starting share of right answers that excuses any length", "window": WINDOW},
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
           "window": WINDOW},
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
