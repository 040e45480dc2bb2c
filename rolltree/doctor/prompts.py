"""Prompts that teach nothing: groups without a gradient, and budget spent where every answer is right or none is."""

from __future__ import annotations

from collections.abc import Iterator

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.lever import knob, option, recipe
from rolltree.doctor.run import CheckedRun, roots
from rolltree.train.vitals import flat_groups, hopeless_groups, solved_groups

WINDOW = "steps over which the mean is taken"
REFILL = recipe("dapo", "drops groups with one outcome and samples other prompts in their place")


@detector(
    "zero_variance",
    "Groups taught although all their leaves had one reward; no group-centred credit draws a gradient from them.",
    reads=("groups.flat",),
    levers=(REFILL, knob("grpo.group", "larger groups are mixed more often"),
            option("temperature", "higher: answers of one prompt differ more")),
    knobs={"most": "share of the taught groups", "worse": "the same, for critical", "window": WINDOW},
)  # fmt: skip
def zero_variance(run: CheckedRun, *, most: float = 0.6, worse: float = 0.85, window: int = 10) -> Iterator[Symptom]:
    """DAPO (arXiv 2503.14476) section 3.2."""
    spell = run.series("groups.flat").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"{spell.value:.0%} of the groups that taught had one reward for all their leaves (limit {most:.0%})",
            {"groups.flat": spell.value, "most": most, "worse": worse},
            run.show(spell, lambda r: roots(r, flat_groups(r))), spell.until,
        )  # fmt: skip


@detector(
    "solved_prompts",
    "Most of the budget goes to prompts whose every answer is right already.",
    reads=("groups.solved_tokens", "groups.solved"),
    levers=(option("level", "a harder task"), REFILL),
    knobs={"most": "share of the decoded tokens", "worse": "the same, for critical", "window": WINDOW},
)
def solved_prompts(run: CheckedRun, *, most: float = 0.5, worse: float = 0.8, window: int = 10) -> Iterator[Symptom]:
    """Tokens decoded in groups that are all right."""
    spell = run.series("groups.solved_tokens").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"{spell.value:.0%} of the tokens went to prompts that every rollout solved (limit {most:.0%})",
            {"groups.solved_tokens": spell.value, "most": most, "worse": worse},
            run.show(spell, lambda r: roots(r, solved_groups(r))), spell.until,
        )  # fmt: skip


@detector(
    "hopeless_prompts",
    "Most of the budget goes to prompts that no rollout solves and where all fail alike.",
    reads=("groups.hopeless_tokens", "groups.hopeless"),
    levers=(option("level", "an easier task"), knob("grpo.group", "more tries for a prompt"), REFILL),
    knobs={"most": "share of the decoded tokens", "worse": "the same, for critical", "window": WINDOW},
)
def hopeless_prompts(run: CheckedRun, *, most: float = 0.6, worse: float = 0.85, window: int = 10) -> Iterator[Symptom]:
    """Tokens decoded in groups without a right answer and with one outcome."""
    spell = run.series("groups.hopeless_tokens").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"{spell.value:.0%} of the tokens went to prompts that no rollout solved (limit {most:.0%})",
            {"groups.hopeless_tokens": spell.value, "most": most, "worse": worse},
            run.show(spell, lambda r: roots(r, hopeless_groups(r))), spell.until,
        )  # fmt: skip
