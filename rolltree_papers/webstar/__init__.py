"""WebSTAR's step-level filtering (arXiv 2512.10962)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rolltree.control.brief import brief
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge, ReadsJudge, entries
from rolltree.generate.search.steps import finished, judge_of
from rolltree.generate.step_labels import step_ends
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts
from rolltree.tree import Node, Tree
from rolltree.tree.steps import STEP_VALUE, THOUGHT, steps_of

# Steps graded one by one, those of failed rollouts too, and thoughts that lead to them (WebSTAR, arXiv 2512.10962).


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


@dataclass(frozen=True, slots=True)
class WebStar:
    """Every step of every rollout is graded by itself, and good steps are kept wherever they stand.

    `rolltree solve webstar --items-from train --out runs/steps` grades them, and `rolltree labels runs/steps --kind sft
    --threshold 0.5` writes the kept ones with their thoughts, each after the whole history as it was: bad steps leave
    the loss and not the context. `--kind head` distils the grades into a small model that `--worth head:FILE` uses
    again (the paper's StepRM). Pages and screenshots are left out, and so is the rubric of eight questions: the grade
    is a judge's in [0, 1], above 0.5 as the paper's above 5 of 10 (reconstructed).
    """

    card: ClassVar[Card] = Card(
        "webstar", "Step-level filtering with hindsight", "2512.10962", 2025,
        "over 15 % above UI-TARS-1.5-7B on WebVoyager by fine-tuning alone (7B)", ("generate", "filter", "credit"),
        "step_labels",
        Evidence("goals reached", "as many steps of successful rollouts",
                 check="rolltree_papers.webstar.study:filtered", seeds=5),
        counter=Counter("rollout/group_size"),
    )  # fmt: skip
    rollouts: int = 8
    """Rollouts of an item, failed ones included."""
    worth: str = "step"
    """Who grades a step: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    delimiter: str = ","
    """What ends a step within a turn; "" = the turn's end alone."""
    threshold: float = 0.5
    """Steps graded above it are kept and thought about."""
    hindsight: str = ""
    """Asks for the thought that leads to {step} after {before}, for {prompt}; "" = none is written."""

    def build(self) -> Parts:
        """Rollouts with graded steps."""
        check_group("webstar", self.rollouts, least=1)
        return search_parts("webstar", GradedSteps(
            self.rollouts, judge_of(self.worth), self.delimiter, self.threshold, self.hindsight,
        ))  # fmt: skip
