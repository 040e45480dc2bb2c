"""How rollouts are served: idle engines, prompts that never come to their turn, tools that fail."""

from __future__ import annotations

from collections.abc import Iterator

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.lever import knob, option, part, recipe
from rolltree.doctor.prompts import WINDOW
from rolltree.doctor.run import CheckedRun, roots
from rolltree.train.rollouts import Rollouts
from rolltree.train.vitals import failed_calls, starved_groups
from rolltree.tree.table import Ints


@detector(
    "idle_engine",
    "Most of the engine's peak load stands idle while a step grows.",
    reads=("seconds.idle_share",),
    levers=(option("prompts", "more rollouts in flight"), option("max_tokens", "cuts the tail that all wait for"),
            knob("dapo.rounds", "fewer rounds that wait for each other")),
    knobs={"most": "1 − mean over most requests in flight", "worse": "the same, for critical", "window": WINDOW},
)  # fmt: skip
def idle_engine(run: CheckedRun, *, most: float = 0.8, worse: float = 0.92, window: int = 10) -> Iterator[Symptom]:
    """From the clock times of events; the engine's own batch limit is not known here."""
    spell = run.series("seconds.idle_share").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"{spell.value:.0%} of the engine's peak load stood idle while rollouts grew (limit {most:.0%})",
            {"seconds.idle_share": spell.value, "most": most, "worse": worse}, (), spell.until,
        )  # fmt: skip


@detector(
    "starved_prompts",
    "Prompts get no finished rollout: all theirs were still running, aborted or out of budget when the step ended.",
    reads=("starved.prompts", "starved.leaves"),
    levers=(option("max_tokens", "rollouts that fit the budget"), option("prompts", "fewer prompts share a budget"),
            part("rolltree.control.ledger:Limits.decoded", "a larger budget for the step")),
    knobs={"most": "share of the prompts", "worse": "the same, for critical", "window": WINDOW},
)  # fmt: skip
def starved_prompts(run: CheckedRun, *, most: float = 0.05, worse: float = 0.25, window: int = 10) -> Iterator[Symptom]:
    """What ends first is short: stopping by count or budget starves the slow prompts."""
    spell = run.series("starved.prompts").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity,
            f"{spell.value:.0%} of the prompts had no rollout that came to its end (limit {most:.0%})",
            {"starved.prompts": spell.value, "most": most, "worse": worse},
            run.show(spell, lambda r: roots(r, starved_groups(r))), spell.until,
        )  # fmt: skip


@detector(
    "tool_failures",
    "Most calls of tools fail: the policy learns from error messages.",
    reads=("tools.failed", "tools.calls"),
    levers=(recipe("cleaner", "replaces failed calls by the policy's own corrections before they teach"),
            recipe("arpo", "branches after calls, where the policy is unsure"), option("level", "an easier task")),
    knobs={"most": "share of calls that fail", "worse": "the same, for critical", "window": WINDOW},
)  # fmt: skip
def tool_failures(run: CheckedRun, *, most: float = 0.6, worse: float = 0.85, window: int = 10) -> Iterator[Symptom]:
    """Environment nodes whose notes say `failed`."""
    spell = run.series("tools.failed").beyond(most, worse, window)
    if spell is not None:
        yield Symptom(
            spell.start, spell.severity, f"{spell.value:.0%} of the tool calls failed (limit {most:.0%})",
            {"tools.failed": spell.value, "most": most, "worse": worse}, run.show(spell, _failing), spell.until,
        )  # fmt: skip


def _failing(r: Rollouts) -> Ints:
    return failed_calls(r).nonzero()[0]
