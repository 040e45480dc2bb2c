"""Steps graded one by one, those of failed rollouts too, and thoughts that lead to them (WebSTAR, arXiv 2512.10962)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rolltree.control.brief import brief
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge, entries
from rolltree.generate.judge.recorded import ReadsJudge
from rolltree.generate.methods.step_labels import step_ends
from rolltree.generate.search.steps import finished
from rolltree.tree import Node, Tree
from rolltree.tree.steps import STEP_VALUE, THOUGHT, steps_of


@dataclass(frozen=True, slots=True)
class GradedSteps(ReadsJudge):
    """Plays rollouts, lets a judge grade every step by itself, and a role write what leads to those above `threshold`.

    Who grades and who writes reads the prompt and what stands up to the step's end, and nothing that came of it. A step
    that the judge says nothing of has no value. In an environment a step is a turn.
    """

    rollouts: int = 8
    judge: Judge = field(default_factory=lambda: Confidence("step"))
    delimiter: str = ","
    """What ends a step within a turn; "" = the turn's end alone."""
    threshold: float = 0.5
    hindsight: str = ""
    """Asks for the thought that leads to {step} after {before}; "" = none is written."""
    thought_tokens: int = 64

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Play, cut, grade, and write thoughts."""
        await Independent(self.rollouts, want=self.want).grow_tree(tree, hand)
        steps: dict[int, Node] = {}
        for leaf in finished(tree):
            for end in step_ends(hand, leaf, self.delimiter):
                hand.place(leaf, end)
            steps |= {step.id: step for step in steps_of(tree, leaf)}
        kept = await self.graded(hand, list(steps.values()))
        if self.hindsight:
            async with asyncio.TaskGroup() as group:
                for step in kept:
                    group.create_task(self.thought(hand, step))

    async def graded(self, hand: Hand, steps: Sequence[Node]) -> list[Node]:
        """Write the judge's grades; the steps that are above the threshold."""
        if not steps:
            return []
        said = await hand.judge(self.judge, [[entry] for entry in entries(hand, steps)], about="steps")
        known = [(step, o[0]) for step, o in zip(steps, said, strict=True) if o is not None and not np.isnan(o[0])]
        for step, grade in known:
            step.scores[STEP_VALUE] = float(grade)
        kept = [step for step, grade in known if grade > self.threshold]
        hand.event("note", None, "graded step by step", steps=len(steps), graded=len(known), kept=len(kept))
        return kept

    async def thought(self, hand: Hand, step: Node) -> None:
        """What leads to a step, in the words of who knows the step and not what follows."""
        above = hand.tree[step.parent] if step.parent is not None else hand.tree.root
        read = hand.read(step.actions)
        asked = self.hindsight.format(prompt=hand.item.prompt, before=hand.text(above), step=read)
        said = await hand.ask("hindsight", brief(asked), about=[step], max_tokens=self.thought_tokens)
        if said:
            step.notes[THOUGHT] = said[0].text
