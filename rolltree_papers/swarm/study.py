"""Nodes that train on one another's groups: tabular policies over sparse tasks, each good at others (SAPO's swarm).

The control publishes and chooses as in a run, through a folder of text; what a node reads is judged by its own verifier
and pushed along its own policy's gradient. Groups without variance are left out in every arm, whoever wrote them.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from rolltree.control.history import History
from rolltree.control.order import Delivery, Order, Written
from rolltree.control.plan import Control, Uniform
from rolltree.credit.fold import fold, leaf_weights
from rolltree.filter.groups import Mixed, sift
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Item
from rolltree.tree import Tree
from rolltree.tree.table import Floats, table
from rolltree_papers.swarm import FOREIGN, PUBLISHED, SwarmRecipe
from studies.exact.bandit import softmax
from studies.lab.claim import Measured
from studies.prompts.world import PromptWorld, grouped, run

NODES, TASKS, ANSWERS, GROUP, PER_ROUND, ROUNDS, RATE = 4, 8, 40, 8, 8, 60, 4.0
HEAD_START = 3.0
"""Logits by which a node knows the answers of its own two tasks."""
Reads = Literal["others", "its past", "nothing"]
"""Whose groups stand beside a node's own."""


@dataclass(slots=True)
class Node(PromptWorld):
    """One node: a policy over answers to each task, of which the first is right."""

    own: int = 0
    answers: Floats = field(init=False)
    parts: Parts = field(init=False)
    seen: list[float] = field(default_factory=list[float])
    """Rewards of its own rollouts, a mean a round."""
    foreign: int = 0
    """Groups that others wrote and that taught."""
    drawn: int = 0
    """Rollouts that it made itself."""

    def __post_init__(self) -> None:
        # `super()` without arguments is the class before `slots=True` made it anew.
        PromptWorld.__post_init__(self)
        self.answers, self.parts = np.zeros((TASKS, ANSWERS)), load_recipe("swarm").build()
        self.answers[[2 * self.own, 2 * self.own + 1], 0] += HEAD_START

    def take(self, count: int) -> list[Item]:
        """Tasks at random."""
        return self.at(self.rng.integers(TASKS, size=count).tolist())

    def serve(self, order: Order, width: int) -> Delivery:
        """Answers of its own, or what an order gives, judged here."""
        if order.given:
            said = [int(w.turns[-1]) for w in order.given]
        else:
            said = self.rng.choice(ANSWERS, size=width, p=softmax(self.answers[task_of(order)])).tolist()
        texts = tuple(map(str, said))
        rewards, written = tuple(float(a == 0) for a in said), tuple(Written((text,)) for text in texts)
        return Delivery(order, rewards, (1,) * len(said), len(said), texts=texts, written=written)

    def pass_time(self, delivered: Sequence[Delivery]) -> None:
        """One update on the groups that have variance, by the recipe's credit and averaging."""
        groups = [group[0] for group in grouped(delivered).values()]
        own = [d for d in groups if d.order.arm != FOREIGN]
        self.seen.append(float(np.mean([d.rate for d in own])))
        self.drawn += sum(d.n for d in own)
        trees = list[Tree]()
        for d in groups:
            tree = Tree(f"t{task_of(d.order)}", [0], item=d.order.prompt.uid)
            for text, reward in zip(d.texts, d.rewards, strict=True):
                tree.extend(0, [int(text)], status="done", scores={"reward": reward})
            trees.append(tree)
        kept, _ = sift(trees, (Mixed(),))
        self.foreign += sum("@node" in tree.item for tree in kept)
        if not kept:
            return
        view = table(kept)
        advantage = self.parts.credit(view)
        folded = fold(view, advantage, leaf_weights(view, "sequence", counted=advantage.counted))
        push, tasks = folded.gain + folded.loss, np.array([int(tree.id[1:]) for tree in kept])
        row, step = np.repeat(tasks[view.tree], view.length), np.zeros_like(self.answers)
        np.add.at(step, (row, view.flat("actions").astype(np.int64)), push)
        step -= np.bincount(row, push, TASKS)[:, None] * softmax(self.answers)
        self.answers += RATE * step


def task_of(order: Order) -> int:
    """Which task an order is about; foreign ones carry their node's name behind it."""
    return int(order.prompt.uid[1:].partition("@")[0])


def trained(seed: int, reads: Reads) -> list[Node]:
    """Four nodes after all rounds; what they read is published as text in a folder of all, or in one of each."""
    nodes = [Node(TASKS, seed=NODES * seed + n, own=n) for n in range(NODES)]
    histories = [History() for _ in nodes]
    with TemporaryDirectory() as made:
        folders = [Path(made) / (str(n) if reads == "its past" else "all") for n in range(NODES)]
        controls: list[Control] = [
            Uniform() if reads == "nothing" else swarm_control(folder, f"node{n}") for n, folder in enumerate(folders)
        ]
        for number in range(1, ROUNDS + 1):
            for n, node in enumerate(nodes):
                run(controls[n], node, 1, prompts=PER_ROUND, width=GROUP, history=histories[n], first=number)
            if reads == "its past":
                for n, folder in enumerate(folders):
                    shutil.copy(folder / f"node{n}{PUBLISHED}", folder / f"past{PUBLISHED}")
    return nodes


def swarm_control(folder: Path, node: str) -> Control:
    """The recipe's own, in a folder."""
    control = SwarmRecipe(folder=str(folder), node=node).build().control
    assert control is not None
    return control


def swarm(seed: int) -> Measured:
    """Mean reward of own rollouts: half of a round's groups from others, against the better of the same nodes alone,
    with groups of their own past in those places or with new ones in all. The curves are by round; and how many
    rollouts a node makes."""
    arms: dict[Reads, list[Node]] = {reads: trained(seed, reads) for reads in ("others", "its past", "nothing")}
    curves = {reads: [float(r) for r in np.mean([node.seen for node in nodes], 0)] for reads, nodes in arms.items()}
    shown = {name: ([float(i) for i in range(ROUNDS)], curve) for name, curve in curves.items()}
    drawn = [float(np.mean([node.drawn for node in nodes])) for nodes in arms.values()]
    value, past, alone = (float(np.mean(curve)) for curve in curves.values())
    acted = {"groups of other nodes that taught": float(sum(node.foreign for node in arms["others"]))}
    return Measured(value, max(past, alone), {**shown, "rollouts made, by arm": ([0.0, 1.0, 2.0], drawn)}, acted)
