"""What the controls are held against: choices and widths that know the true pass rates, and plain ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.control.allocate import square_root
from rolltree.control.brief import brief
from rolltree.control.order import Order
from rolltree.control.plan import Nothing, Plan, Step
from studies.prompts.world import ANSWER, PromptWorld


@dataclass(frozen=True, slots=True)
class OraclePick:
    """The prompts whose true pass rate is nearest to one half."""

    world: PromptWorld
    needs: ClassVar[frozenset[str]] = frozenset()

    def start(self) -> Nothing:
        """Nothing to learn."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """One round."""
        best = np.argsort(np.abs(self.world.logits), kind="stable")[: step.prompts]
        yield [Order(p) for p in step.prompts_of(self.world.at([int(i) for i in best]))]


@dataclass(frozen=True, slots=True)
class OracleWidths:
    """The next prompts with widths by the square-root law of their true variances, rounded at random."""

    world: PromptWorld
    least: int = 2
    needs: ClassVar[frozenset[str]] = frozenset()

    def start(self) -> Nothing:
        """Nothing to learn."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """One round."""
        prompts = step.take()
        p = self.world.rates[[int(x.uid[1:]) for x in prompts]]
        exact = square_root(list(p * (1 - p)), [1.0] * len(prompts), step.width * len(prompts), self.least)
        widths = [int(np.floor(x + step.rng.random())) for x in exact]
        yield [Order(prompt, max(w, 1)) for prompt, w in zip(prompts, widths, strict=True)]


@dataclass(frozen=True, slots=True)
class FixedHint:
    """Every rollout after the same share of the answer."""

    share: float = 0.5
    needs: ClassVar[frozenset[str]] = frozenset()

    def start(self) -> Nothing:
        """Nothing to learn."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """One round."""
        text = ANSWER[: round(self.share * len(ANSWER))]
        yield [Order(p, arm="hint", brief=brief(text, "hint", joins=True)) for p in step.take()]
