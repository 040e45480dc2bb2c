"""Polychromic PPO: polychromic objectives for reinforcement learning (arXiv 2509.25424)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import live_leaves
from rolltree.generate.hand import Hand
from rolltree.generate.signals import features
from rolltree.generate.stems import stems
from rolltree.generate.turns import play
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.tree import Node, Tree

# Success is worth more the sooner it comes: 1 − slow · t/H of the outcome (Polychromic PPO, arXiv 2509.25424).


@dataclass(frozen=True, slots=True)
class Brisk:
    """Takes `slow` · (tokens written / most that may be written) off each outcome, in proportion to it.

    Where a turn is one token (the grid) this is the paper's share of the horizon.
    """

    slow: float = 0.5

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape the outcome of every live leaf; idempotent."""
        for leaf in live_leaves(tree):
            written = sum(len(n) for n in tree.path(leaf) if n.trainable)
            outcome = leaf.scores.setdefault("outcome", leaf.scores["reward"])
            leaf.scores["reward"] -= leaf.scores.get("brisk", 0.0)
            leaf.scores["brisk"] = -self.slow * min(written / limit, 1.0) * outcome
            leaf.scores["reward"] += leaf.scores["brisk"]


# Vines: whole rollouts first, then several fresh ones from states that each of them came through (Polychromic PPO).


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


@dataclass(frozen=True, slots=True)
class PolyPpo:
    """Sets of rollouts from one state are rewarded together: mean reward times the share of different ones.

    From two states of each rollout the environment is set back for eight vines. Every set of four that holds a vine
    speaks for it, and each member gets the set's value less the mean of all sets of that state, on its first `window`
    turns. All 70 sets are taken; the paper draws 4 (`sets=4`). Two rollouts differ where the task's answers do: on the
    grid these are the ways walked, and all that never arrive are one. The paper's baseline elsewhere is a critic;
    here it is the mean of the rollouts or vines from the same state. The weight of the KL to the sampling policy is
    (reconstructed); it acts from the second of the two epochs on. The count bonus is left out.
    """

    card: ClassVar[Card] = Card(
        "poly_ppo", "Polychromic PPO", "2509.25424", 2025,
        "more of the state space solved and reached than with PPO (Four Rooms 92.4 against 89.2 % success, Goto 80.2 "
        "against 46.2 %), and pass@k that keeps rising to k = 80",
        ("generate", "credit", "objective"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:long", seeds=6, settings=("poly_ppo:train.prompts=4",)),
        counter=Counter("rollout/births/vine"),
    )  # fmt: skip
    rollouts: int = 4
    """Rollouts of each prompt."""
    states: int = 2
    """States of each rollout to which the environment is set back."""
    vines: int = 8
    """Rollouts from each of these states."""
    size: int = 4
    """Rollouts in a set."""
    sets: int = 0
    """How many sets are drawn per state; 0 = all of them."""
    window: int = 5
    """First turns of a rollout that a set's value is given to."""
    kind: Literal["product", "sum"] = "product"
    """How reward and difference make a set's value."""
    pooled: bool = False
    """Compare vines from all places of the tree with one state key, whatever the way there."""
    slow: float = 0.5
    """How much of a success is lost at the horizon."""
    clip: float = 0.2
    kl: float = 0.01
    passes: int = 2
    """Passes over the rollouts of a step."""

    def build(self) -> Parts:
        """Rollouts and vines, shared set credit by state, clipped surrogate with a KL to the sampling policy."""
        if self.vines <= self.size:
            raise RecipeError(
                f"poly_ppo: vines={self.vines} leave one set of size={self.size} or none, which is compared with "
                "nothing; give more vines than a set has"
            )
        credit = load_credit(
            "set_shared", size=self.size, kind=self.kind, by="state" if self.pooled else "vine", window=self.window,
            elsewhere="group", **({"most": self.sets} if self.sets else {}),
        )  # fmt: skip
        return Parts(
            "poly_ppo", Vines(self.rollouts, self.states, self.vines), credit,
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl, kl_anchor="old"),
            averaging="token", multiplicity="once", shapers=(Brisk(self.slow),) if self.slow else (),
            optim={"epochs": self.passes},
        )  # fmt: skip
