"""Two heats: the second half of a group is drawn hotter (a template: copy this folder and write your paper)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from rolltree.credit.registry import load_credit
from rolltree.generate.hand import Hand
from rolltree.generate.turns import play
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Parts, RecipeError, check_group
from rolltree.tree import Tree


@dataclass(frozen=True, slots=True)
class TwoHeats:
    """Plays `cold` rollouts at the run's temperature and `hot` ones at `heat`."""

    cold: int
    hot: int
    heat: float
    needs: frozenset[str] = frozenset()

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """All of them at once: concurrent awaits are one batch."""
        cold = [play(hand, tree.root) for _ in range(self.cold)]
        hot = [play(hand, tree.root, birth="resample", temperature=self.heat) for _ in range(self.hot)]
        await asyncio.gather(*cold, *hot)


@dataclass(frozen=True, slots=True)
class Template:
    """Half of a group is drawn hotter, and all are compared with one another.

    The first line says what the method does. Here follows what a reader of the paper must know: where this departs
    from it, what is reconstructed, and what the published code does otherwise.
    """

    card: ClassVar[Card] = Card(
        "template", "Two heats", "none", 2026, "none: it shows how a paper's folder is made", ("generate",), "grpo",
        counter=Counter("rollout/births/resample", unit="{} forks were drawn hot"),
    )  # fmt: skip
    group: int = 8
    heat: float = 1.3
    """Temperature of the second half."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Two heats, group credit, clipped surrogate."""
        check_group("template", self.group)
        if self.heat <= 0:
            raise RecipeError(f"template: heat={self.heat:g} is no temperature; give a number above 0")
        half = self.group // 2
        return Parts(
            "template", TwoHeats(self.group - half, half, self.heat), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
        )  # fmt: skip
