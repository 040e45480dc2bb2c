"""Orders and deliveries: what a plan asks a generator for, and what came of it.

An order names a prompt, how many rollouts, and the arm they belong to; the recipe's strategy grows them, flat or as a
tree. Arms never mix: what an aided arm solved says nothing about what the policy solves alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rolltree.control.brief import Brief
from rolltree.control.probe import Probe, Probed
from rolltree.errors import RolltreeError
from rolltree.task.protocol import Item
from rolltree.tree.store.values import storable

PLAIN = "plain"
"""The arm of unassisted rollouts: the only one that counts in a pass rate."""


class ControlError(RolltreeError, ValueError):
    """A control that cannot steer this run: names the control, the knob or part, and the way out."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """An item in its place in a step; the same item may stand in two places, which are then two groups."""

    item: Item
    place: int

    @property
    def uid(self) -> str:
        """What its history is kept under."""
        return self.item.id


@storable
@dataclass(frozen=True, slots=True)
class Written:
    """A rollout as somebody wrote it: this policy before, another one, or a person."""

    turns: tuple[str, ...]
    """What was said, turn by turn; one text where no environment answers."""
    sampled: tuple[tuple[float, ...], ...] = ()
    """Log-probs that each turn's tokens were sampled with; () = nobody knows."""

    def __post_init__(self) -> None:
        if not self.turns or not all(self.turns):
            raise ControlError("a rollout that is given has a turn without text; leave it out")


@dataclass(frozen=True, slots=True)
class Order:
    """Rollouts of one prompt in one arm. All deliveries for a prompt become one tree, the group of its credit."""

    prompt: Prompt
    width: int | None = None
    """How many rollouts; None = as many as the strategy makes by itself."""
    arm: str = PLAIN
    brief: Brief | None = None
    """Texts that the arm puts beside the prompt, in named slots."""
    marks: Mapping[str, float] = field(default_factory=dict[str, float])
    """Scores written on the prompt: `prior`, `effort`, or `prompt_weight`, which multiplies its advantages."""
    leaf_marks: Mapping[str, float] = field(default_factory=dict[str, float])
    """Scores written on every leaf of the order: `budget`."""
    for_training: bool = True
    """False = asked for to measure only: it stays out of the prompt's group and is dropped with that reason."""
    why: str = ""
    probe: Probe | None = None
    """What looks at its rollouts in flight and may end some of them."""
    limit: int | None = None
    """Most policy tokens on a path, where that is less than the run's."""
    judged: bool = True
    """Whether the task's verifier says what its rollouts are worth. Otherwise the plan does, by `Grades`."""
    texts: bool = False
    """Whether the delivery says what was written; it does where the plan is the judge."""
    turns: int | None = None
    """Most environment steps of a rollout, where that is less than the task's; at 0 the environment never answers."""
    given: tuple[Written, ...] = ()
    """Rollouts that nobody samples: their turns are written below the prompt as the policy's own actions, with the
    log-prob they have under it now, answered by the environment and judged by the verifier."""
    replaces: int = 0
    """How many of the prompt's oldest failures leave its group where this delivers a success."""
    last: bool = False
    """Nothing more will be asked of this prompt: under a schedule its group may be trained before the plan is over."""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ControlError(f"a limit of {self.limit} tokens for {self.prompt.uid!r} leaves nothing; leave it out")
        if self.turns is not None and self.turns < 0:
            raise ControlError(f"{self.turns} environment steps for {self.prompt.uid!r} make no sense; give 0 or more")
        if self.given and (self.width not in (None, len(self.given)) or self.brief is not None or not self.judged):
            raise ControlError(
                f"rollouts given for {self.prompt.uid!r} are as many as they are, below the bare prompt, and judged by "
                "the task; leave width, brief and judged=False out"
            )
        if self.width is not None and self.width < 1:
            raise ControlError(f"an order of {self.width} rollouts of {self.prompt.uid!r} makes no sense; leave it out")
        if self.arm == PLAIN and self.brief is not None:
            raise ControlError(f"a prompt with a brief ({self.prompt.uid!r}) needs an arm of its own, not {PLAIN!r}")
        for slot in self.brief or ():
            if slot.before and not slot.hidden:
                raise ControlError(
                    f"slot {slot.name!r} in front of a prompt changes the root of its tree; hide it, or put it after"
                )


@dataclass(frozen=True, slots=True)
class Delivery:
    """What came of an order."""

    order: Order
    rewards: tuple[float, ...]
    """Outcomes of its finished rollouts as the verifier gave them. Pruned and failed ones are unknown, not zeros."""
    lengths: tuple[int, ...] = ()
    """Policy tokens of each."""
    decoded: int = 0
    """Tokens it cost, each prefix once."""
    failed: int = 0
    kept: bool = True
    """Whether the prompt's group, all that was delivered for it so far, passes the recipe's filters."""
    solved_text: str = ""
    """The shortest right answer; "" where there is none."""
    texts: tuple[str, ...] = ()
    """What each finished rollout says, where the order asked for it."""
    turns: tuple[int, ...] = ()
    """Environment steps of each finished rollout."""
    written: tuple[Written | None, ...] = ()
    """Each finished rollout as it can be given again, where the order asked for texts; None = it has a turn without."""
    logp: tuple[float, ...] = ()
    """Mean log-prob of an action of each finished rollout where the order gave them: how likely it is to the policy."""
    probes: tuple[Probed, ...] = ()
    """Rollouts that were looked at in flight, those that were ended there included."""
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    """What the plan measured on it; a step's metrics hold the mean as `control.NAME`."""

    @property
    def n(self) -> int:
        """Rollouts with an outcome."""
        return len(self.rewards)

    @property
    def solved(self) -> float:
        """Number of successes; graded rewards count as the part of one that they are."""
        return sum(min(max(r, 0.0), 1.0) for r in self.rewards)

    @property
    def rate(self) -> float:
        """Share solved; 0 where nothing has an outcome."""
        return self.solved / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class Grades:
    """Outcomes that a plan gives to rollouts delivered to it without one, because more than their own group decides.

    Prompts that are left out stay without outcomes: their rollouts are dropped with that reason, not graded zero.
    """

    rewards: Mapping[int, tuple[float, ...]]
    """By place of the prompt: one number for each text of its delivery."""
    numbers: Mapping[int, Mapping[str, float]] = field(default_factory=dict[int, Mapping[str, float]])
    """What was measured on the way, by place."""
