"""Vines: whole rollouts first, then several fresh ones from states that each of them came through (Polychromic PPO)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from rolltree.generate.hand import Hand
from rolltree.generate.signals import features
from rolltree.generate.stems import stems
from rolltree.generate.turns import play
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Vines:
    """n rollouts; from `states` states of each, drawn evenly without looking at outcomes, `vines` fresh rollouts.

    A state is the prompt or an answer of the environment after which the rollout went on; one that two rollouts share
    (the prompt) gets its vines once. The environment is set back by its snapshot, and what a vine writes follows the
    policy's distribution. Its tokens and environment steps are paid like any others.
    """

    rollouts: int = 4
    states: int = 2
    vines: int = 8
    want: frozenset[str] = frozenset()
    """Extras to record for the credit."""

    @property
    def leaves(self) -> int:
        """The most it makes of a prompt."""
        return self.rollouts * (1 + self.states * self.vines)

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded, an environment that answers, and one that can be set back."""
        return features(self.want) | {"turns", "snapshot"}

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Two waves: all rollouts, then all vines."""
        leaves = await stems(hand, self.rollouts, want=self.want)
        chosen: dict[int, Node] = {}
        for number, leaf in enumerate(leaves):
            for state in self._chosen(hand, leaf, number):
                if state.id not in chosen:
                    chosen[state.id] = state
                    hand.event("select", state, f"a state of rollout {number}", vines=self.vines, rollout=leaf.id)
        async with asyncio.TaskGroup() as group:
            for state in chosen.values():
                for _ in range(self.vines):
                    group.create_task(play(hand, state, birth="vine", want=self.want))

    def _chosen(self, hand: Hand, leaf: Node, number: int) -> list[Node]:
        path = hand.tree.path(leaf)
        # The environment's last word is no state where the episode ended with it: nothing is done there.
        states = [n for n in path if n.role == "prompt" or (n.role == "env" and n is not leaf)]
        rng = hand.rng.child("vines", number).generator()
        picked = rng.choice(len(states), min(self.states, len(states)), replace=False)
        return [states[i] for i in sorted(int(i) for i in picked)]
