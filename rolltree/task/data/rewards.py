"""Several rewards with weights, as `--reward math:1.0 --reward file.py:format:0.2` names them.

The first is the main one: a rollout is solved where it reaches its threshold, whatever the weighted sum says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from rolltree.errors import did_you_mean
from rolltree.task.data.builtin import BUILTINS, Ask, Completion
from rolltree.task.data.functions import function
from rolltree.task.foreign.parts import number
from rolltree.task.items import TaskError
from rolltree.task.protocol import Verdict

RESERVED = ("reward", "outcome", "solved", "step_reward", "advantage", "value", "prior", "vote")
"""Names that mean something else among the scores of a leaf."""
NOTHING = "none"
"""Named alone: nothing is judged, and answers are read off texts for votes."""
_BRACKETS = re.compile(r"(\w+)(?:\((.*)\))?\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reward:
    """One reward: the name it is logged by, its weight, and how it is asked."""

    name: str
    weight: float
    ask: Ask
    needs_answer: bool
    foreign: bool
    """Whether it is somebody's own function."""


@dataclass(frozen=True, slots=True)
class RewardSum:
    """Rewards that judge together."""

    rewards: tuple[Reward, ...]
    solved_at: float = 1.0
    """What the first reward must reach for a rollout to be solved."""

    async def verdict(self, said: Completion) -> Verdict:
        """The weighted sum, and each reward by its name; one that gives no number makes the rollout fail."""
        total, parts = 0.0, dict[str, float]()
        answer, why, solved = None, "", False
        for at, reward in enumerate(self.rewards):
            told = await reward.ask(said)
            value = number(told.value, f"the reward {reward.name}", said.item.id)
            total += reward.weight * value
            parts |= {**told.parts, reward.name: value}
            if at == 0:
                answer, why, solved = told.answer, told.why, value >= self.solved_at - 1e-9
        return Verdict(total, parts, answer, why, solved)

    @property
    def measures(self) -> frozenset[str] | None:
        """The parts that a verdict has; a function of one's own may give more than its number."""
        if any(reward.foreign for reward in self.rewards):
            return None
        return frozenset(name for r in self.rewards for name in (r.name, *BUILTINS[r.name].parts))

    @property
    def about(self) -> str:
        """What is said of them before a run."""
        if not self.rewards:
            return "nothing is judged"
        alone = len(self.rewards) == 1 and self.rewards[0].weight == 1
        listed = [r.name if alone else f"{r.name} × {r.weight:g}" for r in self.rewards]
        return f"rewarded by {' + '.join(listed)}; solved where {self.rewards[0].name} ≥ {self.solved_at:g}"


def reward_sum(specs: Sequence[str], solved_at: float | None = None) -> RewardSum:
    """The rewards that are named; none of them for "none"."""
    if tuple(specs) == (NOTHING,):
        return RewardSum(())
    if NOTHING in specs:
        raise TaskError(f"--reward {NOTHING} stands alone: leave out it or the others")
    rewards = tuple(_reward(spec) for spec in specs)
    names = [reward.name for reward in rewards]
    for name in names:
        if names.count(name) > 1:
            raise TaskError(f"two rewards are called {name!r}; name each once, and give functions names of their own")
    if solved_at is not None and not isfinite(solved_at):
        raise TaskError(f"--solved-at {solved_at} can be reached by nothing; give a number")
    return RewardSum(rewards, 1.0 if solved_at is None else float(solved_at))


def _reward(spec: str) -> Reward:
    """`NAME`, `NAME(…)`, `file.py:function` or `module:function`, each with `:WEIGHT` behind it or without."""
    head, colon, tail = spec.rpartition(":")
    weight = _weight(tail) if colon else None
    address = head if weight is not None else spec
    weight = 1.0 if weight is None else weight
    if not isfinite(weight):
        raise TaskError(f"the weight of --reward {spec} is no number that can be added; give one, as in {address}:0.5")
    found = _BRACKETS.match(address)
    if found is not None and found[1] in BUILTINS:
        builtin = BUILTINS[found[1]]
        return Reward(found[1], weight, builtin.make(found[2] or ""), builtin.needs_answer, foreign=False)
    place, colon, name = address.rpartition(":")
    if not colon:
        way = (
            did_you_mean(address, BUILTINS)
            or f"there are {', '.join(BUILTINS)} and {NOTHING}, or write file.py:function"
        )
        raise TaskError(f"there is no reward {address!r}: {way}")
    if place.endswith(".py") and not Path(place).is_file():
        raise TaskError(f"the reward {address!r}: there is no file {place}")
    shown = f"{Path(place).stem}_{name}" if name in RESERVED else name
    return Reward(shown, weight, function(address), needs_answer=False, foreign=True)


def _weight(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
