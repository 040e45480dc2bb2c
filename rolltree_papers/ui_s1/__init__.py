"""UI-S1: semi-online reinforcement learning along logged demonstrations (arXiv 2509.11543)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import numpy as np

from rolltree.control.hints import Expert
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import node_scores, outcomes
from rolltree.credit.registry import load_credit, register
from rolltree.credit.steps import granted, over_steps, steps
from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.outside import restore
from rolltree.generate.strategy import NeedsError
from rolltree.generate.turns import hands_over, lacks_outcome, turns
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree
from rolltree.tree.table import Bools, Floats, Ints, Table

# Step and episode terms of a rollout simulated along a logged demonstration.


def patches(table: Table) -> Bools:
    """Turns that a demonstration took in the place of the policy: nodes with score `patch`."""
    return np.fromiter((n.scores.get("patch", 0.0) > 0.5 for n in table.nodes), np.bool_, len(table.nodes))


@register("semi_online", paper="UI-S1, arXiv:2509.11543", family="step")
@dataclass(frozen=True, slots=True)
class SemiOnline:
    """A = w_e A_episode + w_s A_step; A_step normalises G_t among the same step of the task's rollouts, A_episode the
    step rewards among ALL rows of the task (UI-S1).

    G_t = r_t + γ G_{t+1} where the action matched the demonstration, else r_t: a reward never flows back across a
    patch. Each turn's node has score `match`; r_t is what was granted at the turn. A turn that did not match may be a
    leaf, with the demonstration's turn beside it (score `patch` = 1, which does not train) and the rest of the rollout
    below that. The episode term is over rows, so long rollouts weigh more. At late steps groups shrink; alone, a step
    gets 0. Fold with multiplicity "once": turns before a patch stand above two leaves.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward", "turn:match"})
    gamma: float = 0.5
    w_episode: float = 1.0
    """Weight of the advantage over whole rollouts."""
    w_step: float = 1.0
    """Weight of the advantage over the same step."""
    std: bool = True
    outcome: bool = False
    """Whether the leaf's outcome counts as reward of its last turn."""
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every turn, on its node."""
        outcomes(table)
        found = steps(table)
        rows, patch = found.row, patches(table)
        match = np.zeros(len(table.nodes))
        match[rows] = node_scores(table, "match", rows)
        is_step = np.zeros(len(table.nodes), np.bool_)
        is_step[rows] = True
        earned, led_to = self._returns(table, is_step, patch, match > 0.5)
        turn = np.rint(table.down((is_step | patch).astype(np.float64))).astype(np.int64)[rows]
        task = table.tree[rows]
        step = self._normalised(led_to[rows], task * (int(turn.max(initial=0)) + 1) + turn)
        episode = self._normalised(earned[rows], task)
        return Advantage(node=over_steps(table, found, self.w_episode * episode + self.w_step * step))

    def _returns(self, table: Table, is_step: Bools, patch: Bools, match: Bools) -> tuple[Floats, Floats]:
        """Per node, what was granted from a turn to the next one, and what the turn led to (the mean over forks)."""
        live = table.below(table.live.astype(np.float64)) > 0
        size = len(table.nodes)
        last = np.where(is_step, np.arange(size), -1)
        for level in table.levels[1:]:
            above = last[table.parent[level]]
            last[level] = np.where(is_step[level] | patch[level], last[level], above)
        got = np.where(live, granted(table, self.outcome), 0.0)
        earned = np.bincount(last[last >= 0], got[last >= 0], minlength=size).astype(np.float64)
        before = np.where(is_step & (table.parent >= 0), last[table.parent], -1)
        led_to, follow = earned.copy(), np.bincount(before[before >= 0], minlength=size)
        for level in table.levels[:0:-1]:
            rows = level[before[level] >= 0]
            onto = before[rows]
            np.add.at(led_to, onto, self.gamma * match[onto] * led_to[rows] / follow[onto])
        return earned, led_to

    def _normalised(self, values: Floats, group: Ints) -> Floats:
        how = "std" if self.std else "none"
        return scaled(centred(values, group, "mean"), values, group, how, ddof=self.ddof, eps=self.eps)


# Groups whose rollouts differ in what their first turn led to (UI-S1, arXiv 2509.11543).


@dataclass(frozen=True, slots=True)
class FirstReturns:
    """Keeps a task where the standard deviation over rollouts of the first turn's return exceeds `least`.

    The return is the one that semi-online credit compares: rewards of turns, the environment's among them, discounted,
    up to the first turn that left the demonstration. A patched rollout is therefore counted to its patch.
    """

    least: float = 0.3
    gamma: float = 0.5

    def __call__(self, tree: Tree) -> str | None:
        """Why the task's rollouts are too much alike; None keeps them."""
        returns = [self._return(tree, turn) for turn in tree.children(tree.root) if "match" in turn.scores]
        if len(returns) < 2:
            return f"{len(returns)} rollouts to compare"
        spread = float(np.std(returns))
        if spread > self.least:
            return None
        return f"returns of the first turn have a standard deviation of {spread:.2f}, not above {self.least:g}"

    def _return(self, tree: Tree, turn: Node) -> float:
        answers = tree.children(turn)
        own = sum(node.scores.get("step_reward", 0.0) for node in (turn, *answers))
        if turn.scores["match"] <= 0.5:
            return own
        after = (later for answer in answers for later in tree.children(answer) if "match" in later.scores)
        later = next(after, None)
        return own + (0.0 if later is None else self.gamma * self._return(tree, later))


# Rollouts simulated along a logged demonstration: the policy speaks, the demonstration steers (UI-S1).


@dataclass(frozen=True, slots=True)
class SemiOnlineTurns:
    """`n` rollouts whose every turn is held against the demonstration's in the same state (UI-S1, arXiv 2509.11543).

    A turn that matches is played. One that does not is a leaf of its own; while patches are left the demonstration's
    turn stands beside it, untrained, and the rollout goes on below that. So the environment only ever sees what was
    logged, and the history is the policy's own words wherever they matched. Scores: `match` on each turn, `patch` on
    the demonstration's, `pay` as the step reward of a match. A leaf is verified at the demonstration's end; one that
    left it earlier has the share of its turns that matched as `progress` and an outcome of 0.
    """

    n: int = 8
    patches: int = 2
    """How often a rollout may be put back on the way; -1 = always."""
    pay: float = 1.0
    want: frozenset[str] = frozenset()
    needs: frozenset[str] = frozenset({"turns"})
    writes: ClassVar[frozenset[str]] = frozenset({"turn:match"})

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse tasks that nobody can demonstrate."""
        if not isinstance(task, Expert):
            raise NeedsError(
                f"semi-online rollouts follow a demonstration, but the task {task.name!r} has no expert to give one; "
                "choose another task, such as 'grid'"
            )

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """All rollouts at once."""
        begun = sum(first.trainable for first in tree.children(tree.root))
        missing = int(min(self.n - begun, hand.budget.remaining("leaves")))
        async with asyncio.TaskGroup() as group:
            for _ in range(missing):
                group.create_task(self._follow(tree, hand))

    async def _follow(self, tree: Tree, hand: Hand) -> None:
        here, used, matched = tree.root, 0, 0
        while True:
            grown = await hand.extend(here, want=self.want)
            if not grown:
                return
            turn = grown[0]
            shown = await self._shown(hand, here, turn) if turn.status in ("open", "done") else None
            if shown is None:
                return
            match = hand.turn(turn) == shown
            matched += match
            turn.scores.update(match=float(match), step_reward=self.pay * match)
            if not match:
                self._leave(hand, turn, matched)
                patch = None if used == self.patches else await self._patch(hand, here, shown)
                if patch is None:
                    return
                turn, used = patch, used + 1
            answer = None if match and not hands_over(hand, turn) else await hand.act(turn)
            if answer is None or answer.status != "open" or turns(hand, answer) >= hand.max_turns:
                await self._end(hand, turn if answer is None else answer)
                return
            here = answer

    async def _shown(self, hand: Hand, here: Node, turn: Node) -> str | None:
        """The demonstration's turn in the state that `turn` answers; None where the state is lost."""
        held = await restore(hand, here)
        if held is None:
            if turn.status == "open":
                hand.close(turn, "budget", "the state it answers could not be restored")
            return None
        task: Any = hand.task
        return task.act(hand.item, held[0], Random(f"{hand.item.id}/{turns(hand, here)}"), 0.0)

    def _leave(self, hand: Hand, turn: Node, matched: int) -> None:
        if turn.status == "open":
            hand.close(turn, "stop", "not what the demonstration did")
        steps = turns(hand, turn) + 1
        turn.scores.update(reward=0.0, progress=matched / steps)
        turn.notes["answer"] = None
        hand.event("note", turn, "left the demonstration", matched=matched, turns=steps)

    async def _patch(self, hand: Hand, here: Node, shown: str) -> Node | None:
        patch = await hand.force(here, shown, role="hint", why="the demonstration's turn")
        if patch is not None:
            patch.scores["patch"] = 1.0
        return patch

    async def _end(self, hand: Hand, leaf: Node) -> None:
        if leaf.status == "open":
            hand.close(leaf, "depth", "the last turn that a rollout may have")
        if lacks_outcome(leaf):
            await hand.verify(leaf)


@dataclass(frozen=True, slots=True)
class UiS1:
    """Multi-turn rollouts on logged data: turns that leave the demonstration are patched by it and taught all the same.

    Each turn is compared with the same turn of the prompt's other rollouts by what it led to, and with all turns of the
    prompt by what it earned. Tasks whose rollouts' first returns have a standard deviation of `spread` or less make
    room for others, up to `rounds` rounds; dropped ones say so in their events. The paper writes a thought beside each
    patched action, which is left out. `patches=-1, gamma=0, w_episode=0` is offline training turn by turn. As
    published, an equally good way that is not the demonstration's counts as wrong.
    """

    card: ClassVar[Card] = Card(
        "ui_s1", "Semi-online reinforcement learning", "2509.11543", 2025,
        "12.0 (AndroidWorld) and 23.8 points (AITW) over the base model (7B), without an online environment",
        ("generate", "filter", "credit"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:long", seeds=6),
        counter=Counter("rollout/births/forced"),
    )  # fmt: skip
    group: int = 8
    patches: int = 2
    """How often a rollout may be put back on the way; -1 = always."""
    gamma: float = 0.5
    w_episode: float = 1.0
    """Weight of the comparison of whole episodes."""
    w_step: float = 1.0
    """Weight of the comparison of single turns."""
    spread: float = 0.3
    """Standard deviation of the first turn's return that a task must exceed; below 0 every task is trained on."""
    rounds: int = 3
    """Most rounds of sampling in a step."""
    updates: int = 4
    """Updates of a step."""
    clip: float = 0.2
    kl: float = 0.0
    """Weight of the penalty towards the starting policy; 0.0001 in the paper."""

    def build(self) -> Parts:
        """Rollouts along a demonstration, step and episode terms, clipped surrogate; a shared turn counts once."""
        check_group("ui_s1", self.group)
        return Parts(
            "ui_s1", SemiOnlineTurns(self.group, self.patches),
            load_credit("semi_online", gamma=self.gamma, w_episode=self.w_episode, w_step=self.w_step),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
            multiplicity="once", filters=(FirstReturns(self.spread, self.gamma),), rounds=self.rounds,
            optim={"minibatches": self.updates},
        )  # fmt: skip
