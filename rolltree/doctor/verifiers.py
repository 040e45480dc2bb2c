"""Verifiers, environments and engines that crash, and verifiers that do not say the same twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.lever import knob, part
from rolltree.doctor.prompts import WINDOW
from rolltree.doctor.run import CheckedRun, leaves
from rolltree.doctor.series import NotChecked
from rolltree.train.rollouts import Rollouts
from rolltree.train.vitals import BREAKERS, answer_codes, split_leaves
from rolltree.tree.table import Ints


@detector(
    "crashes",
    "Rollouts are lost because the verifier, the environment or the engine broke.",
    reads=("failed.share", *(f"failed.{name}" for name in BREAKERS)),
    levers=(part("rolltree.generate.patience:Patience.tries", "more attempts"),
            part("rolltree.generate.patience:Patience.verify_seconds", "more time for the verifier"),
            part("rolltree.generate.patience:Patience.step_seconds", "more time for the environment")),
    knobs={"most": "share of the leaves", "worse": "the same, for critical", "window": WINDOW},
)  # fmt: skip
def crashes(run: CheckedRun, *, most: float = 0.01, worse: float = 0.1, window: int = 10) -> Iterator[Symptom]:
    """Failed nodes: counted and shown, never a reward of zero."""
    lost = run.series("failed.share")
    spell = lost.beyond(most, worse, window)
    if spell is not None:
        means = lost.trailing(window)
        worst = int(means.steps[np.flatnonzero(means.values == spell.value)[-1]])
        causes = {name: _mean(run, f"failed.{name}", window, worst) for name in BREAKERS}
        what = max(causes, key=lambda name: causes[name])
        said = f", most often the {what}" if causes[what] > 0 else ""
        told = [why for step, why in run.causes() if step >= spell.start]
        said += f', as in "{told[-1]}"' if told else ""
        yield Symptom(
            spell.start, spell.severity, f"{spell.value:.1%} of the rollouts failed{said} (limit {most:.1%})",
            {"failed.share": spell.value, **{f"failed.{n}": c for n, c in causes.items() if c}, "most": most,
             "worse": worse},
            run.show(spell, lambda r: leaves(r, r.is_("status", "failed")[r.leaf])), spell.until,
        )  # fmt: skip


@detector(
    "retries",
    "Calls to the verifier, the environment or the engine succeed only when tried again.",
    reads=("failed.retries",),
    levers=(part("rolltree.generate.patience:Patience.wait", "a pause before trying again"),
            part("rolltree.generate.patience:Patience.verify_seconds", "more time for the verifier")),
    knobs={"most": "retries per leaf", "worse": "the same, for critical", "window": WINDOW},
)  # fmt: skip
def retries(run: CheckedRun, *, most: float = 0.1, worse: float = 0.5, window: int = 10) -> Iterator[Symptom]:
    """What will crash next."""
    spell = run.series("failed.retries").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity, f"{spell.value:.2f} calls per rollout were tried again (limit {most:g})",
            {"failed.retries": spell.value, "most": most, "worse": worse}, (), spell.until,
        )  # fmt: skip


NOISE_LEVERS = (
    knob("grpo.group", "larger groups average the noise"),
    part("rolltree.filter.rewards:RewardPart.gate", "a structural check before the noisy one"),
)


@detector(
    "noisy_verifier",
    "The same transcript, word for word, got different outcomes: the verdict does not depend on the answer alone.",
    reads=("verdicts.split", "verdicts.repeated"),
    levers=NOISE_LEVERS,
    knobs={"most": "share of the transcripts that stand twice in a tree", "worse": "the same, for critical",
           "window": WINDOW},
)  # fmt: skip
def noisy_verifier(run: CheckedRun, *, most: float = 0.01, worse: float = 0.1, window: int = 10) -> Iterator[Symptom]:
    """A verifier is a function of item and transcript."""
    spell = run.series("verdicts.split").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"{spell.value:.1%} of the repeated transcripts got two different outcomes (limit {most:.1%})",
            {"verdicts.split": spell.value, "most": most, "worse": worse},
            run.show(spell, _twice), spell.until,
        )  # fmt: skip


@detector(
    "split_answers",
    "The same final answer to the same prompt was called right in one rollout and wrong in another.",
    reads=("verdicts.answer_split", "verdicts.answer_repeated"),
    levers=NOISE_LEVERS,
    knobs={"most": "share of the answers that stand twice in a tree", "worse": "the same, for critical",
           "window": WINDOW},
)  # fmt: skip
def split_answers(run: CheckedRun, *, most: float = 0.25, worse: float = 0.6, window: int = 10) -> Iterator[Symptom]:
    """Fine in small numbers where a task judges more than the answer (hidden tests, steps, formats)."""
    spell = run.series("verdicts.answer_split").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"{spell.value:.0%} of the repeated answers were called right and wrong (limit {most:.0%})",
            {"verdicts.answer_split": spell.value, "most": most, "worse": worse}, run.show(spell, _split), spell.until,
        )  # fmt: skip


def _twice(r: Rollouts) -> Ints:
    return leaves(r, split_leaves(r, r.transcript.view(np.int64), r.judged)[0])


def _split(r: Rollouts) -> Ints:
    codes = answer_codes(r)
    return leaves(r, split_leaves(r, codes, r.judged & (codes >= 0))[0])


def _mean(run: CheckedRun, name: str, window: int, step: int) -> float:
    """The trailing mean of a cause at a step; 0 where no event names causes (forests of other programs)."""
    try:
        means = run.series(name).trailing(window)
    except NotChecked:
        return 0.0
    found = means.values[means.steps == step]
    return float(found[0]) if len(found) else 0.0
