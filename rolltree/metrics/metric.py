"""What is known of a metric: its unit, one sentence, which way is better, and where it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

GROUPS = {
    "reward": "Outcomes of rollouts, groups of one prompt, and the verifier.",
    "rollout": "What rollouts look like and what became of them.",
    "policy": "The policy in training against the one that wrote the rollouts.",
    "optim": "The optimizer's steps.",
    "budget": "Tokens and calls, and which prompts they went to.",
    "time": "Seconds, and who stood idle.",
    "staleness": "Versions of the weights between writing and training.",
    "eval": "Held-out items under the current weights.",
}
"""The first word of every name, and what it holds."""

Unit = Literal["share", "tokens", "rollouts", "groups", "prompts", "nodes", "nats", "versions", "seconds", "count",
               "number"]  # fmt: skip
Better = Literal["higher", "lower", ""]


@dataclass(frozen=True)
class Metric:
    """One number, under the one name it has in logs, trackers, comparisons, the doctor and the viewer."""

    name: str
    """`group/name`; a part in angle brackets is open: `reward/part/<part>`."""
    unit: Unit
    about: str
    """One plain sentence."""
    where: str
    """The function that computes it, as "module:function" below `rolltree`; of a paper with the whole name."""
    better: Better = ""
    """Empty where neither is."""
    sparse: bool = False
    """Whether a step in which it is 0 leaves it out."""
    own: bool = False
    """Whether it stands for numbers of parts that are not Rolltree's own."""

    @property
    def group(self) -> str:
        """The first word of its name."""
        return self.name.partition("/")[0]

    @property
    def is_pattern(self) -> bool:
        """Whether a part of its name is open."""
        return "<" in self.name

    @cached_property
    def _fixed(self) -> tuple[str, str]:
        before, _, rest = self.name.partition("<")
        return before, rest.partition(">")[2]

    def matches(self, name: str) -> bool:
        """Whether a name is this metric's, or one that its pattern stands for."""
        if not self.is_pattern:
            return name == self.name
        before, after = self._fixed
        return len(name) > len(before) + len(after) and name.startswith(before) and name.endswith(after)

    @property
    def module(self) -> str:
        """The whole name of the module that computes it."""
        place = self.where.partition(":")[0]
        return place if place.startswith("rolltree_papers.") else f"rolltree.{place}"

    @property
    def function(self) -> str:
        """The name of what computes it there."""
        return self.where.partition(":")[2]
