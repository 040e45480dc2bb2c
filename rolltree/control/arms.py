"""Arms, then free: some rollouts of a prompt must use the tools, some must not, and the others are free to choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.brief import brief
from rolltree.control.order import PLAIN, ControlError, Order
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.engine.protocol import Engine
from rolltree.task.protocol import Task

FREE, FORCED, FORBIDDEN, THOUGHT = 0.0, 1.0, 2.0, 3.0
MODE = "tool_mode"
"""Score of a leaf: which of them it is."""


@dataclass(frozen=True, slots=True)
class ToolModes:
    """Every prompt in three arms. The two that are told so are told in a text behind the prompt, which does not train.

    The arm without tools also ends where it calls one all the same: it has `answering` environment steps, 1 where the
    answer itself is handed to the environment and 0 where it is not. Leaves carry `tool_mode`.

    With `tags` arms are not told: their answers are begun for them by a tag that the free ones write themselves (tasks
    `tagged:NAME`), and there is one more, which thinks without tools. Tags that are given do not train.
    """

    name: ClassVar[str] = "tool_modes"
    paper: ClassVar[str] = "2510.01681"
    needs: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[frozenset[str]] = frozenset({"leaf:tool_mode"})
    forced: int = 4
    """Rollouts that are told to use the tools."""
    forbidden: int = 4
    """Rollouts that are told not to."""
    free: int = 8
    """Rollouts that are told nothing; they alone count in a prompt's pass rate."""
    use: str = "Use a tool before you answer.\n"
    """What the first are told; "" = nothing, and they only count as told."""
    avoid: str = "Answer without tools.\n"
    """What the second are told."""
    answering: int = 1
    """Environment steps of a rollout without tools."""
    tags: tuple[str, ...] = ()
    """What an answer at once, thought without tools and the use of tools begin with; () = arms are told in words."""

    def __post_init__(self) -> None:
        if min(self.forced, self.forbidden, self.free) < 1:
            raise ControlError(
                f"tool_modes: {self.forced} forced, {self.forbidden} forbidden and {self.free} free rollouts leave an "
                "arm empty; give each 1 or more"
            )
        if not (self.use and self.avoid):
            raise ControlError("tool_modes: an arm that is told nothing is free; give `use` and `avoid` a text each")
        if self.tags and len(self.tags) != 3:
            raise ControlError(f"tool_modes: tags={self.tags} must be three, or none; see rolltree.task.tagged")
        if self.answering < 0:
            raise ControlError(f"tool_modes: answering={self.answering} steps make no sense; give 0 or more")

    def check(self, engine: Engine, task: Task) -> None:
        """Tags are read by tasks that know them."""
        if self.tags and not task.name.startswith("tagged:"):
            raise ControlError(
                f"tool_modes: the task {task.name!r} reads no tags; take --task tagged:{task.name}, or give tags=()"
            )

    def start(self) -> Nothing:
        """It learns nothing across steps."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """All arms at once."""
        arms = [("with tools", FORCED, self.forced), ("without tools", FORBIDDEN, self.forbidden)]
        told = [brief(self.use, "mode"), brief(self.avoid, "mode")]
        if self.tags:
            at_once, thought, tools = (brief(tag, "mode", joins=True) for tag in self.tags)
            arms.append(("thought", THOUGHT, self.forbidden))
            told = [tools, at_once, thought]
        yield [
            order
            for prompt in step.take()
            for order in (
                *(
                    Order(
                        prompt, width, arm, text, leaf_marks={MODE: mode}, why=arm, last=True,
                        turns=None if mode == FORCED else self.answering,
                    )
                    for (arm, mode, width), text in zip(arms, told, strict=True)
                ),
                Order(prompt, self.free, PLAIN, leaf_marks={MODE: FREE}, why=PLAIN, last=True),
            )
        ]  # fmt: skip
