"""Small forests to try a credit, a filter or an objective on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from rolltree.tree import Node, Top, Tree

Shape: TypeAlias = "Sequence[Shape]"
"""Nested sequences: each is a node, an empty one a leaf."""


def flat(
    rewards: Sequence[float | None], lengths: Sequence[int] | None = None, *, id: str = "t0", item: str = ""
) -> Tree:
    """A prompt of two actions and one response per reward; a reward of None makes a failed leaf."""
    tree = Tree(id, [1, 2], item=item)
    for reward, length in zip(rewards, lengths or [3] * len(rewards), strict=True):
        scores = {} if reward is None else {"reward": float(reward)}
        status = "failed" if reward is None else "done"
        tree.extend(0, np.arange(length, dtype=np.int32), scores=scores, status=status)
    return tree


def grown(shape: Shape, rng: np.random.Generator, *, id: str = "t0") -> Tree:
    """A tree of a shape with lengths 0 to 3, masked and untrained stretches, and leaf rewards in {0, 1, 2}."""
    tree = Tree(id, [7])
    todo: list[tuple[int, Shape]] = [(0, shape)]
    while todo:
        above, spec = todo.pop(0)
        for below in spec:
            length = int(rng.integers(0, 4))
            node = tree.extend(above, rng.integers(0, 9, length).astype(np.int32), status="done")
            if length and rng.random() < 0.3:
                node.keep = rng.random(length) < 0.6
            if rng.random() < 0.1:
                node.trainable = False
            if not below:
                node.scores["reward"] = float(rng.integers(0, 3))
            todo.append((node.id, below))
    return tree


def episodes(rng: np.random.Generator, *, prompts: int = 3, group: int = 6, id: str = "t") -> list[Tree]:
    """Independent agent episodes that carry everything any credit here can ask for.

    Each prompt has `group` episodes of one to four turns; turns answer one of three states, have switch flags, critic
    values, spans, entropies, log-probs and alternatives; prompts have a prior, an effort and a greedy reward.
    """
    trees: list[Tree] = []
    for p in range(prompts):
        tree = Tree(f"{id}{p}", [p, 1], item=f"item{p}")
        tree[0].state_key = "s0"
        tree[0].scores.update(prior=float(rng.uniform(0.2, 0.8)), effort=0.9, greedy_reward=float(rng.integers(0, 2)))
        for e in range(group):
            above = 0
            turns = int(rng.integers(1, 5))
            for t in range(turns):
                turn = tree.extend(above, rng.integers(0, 9, 3).astype(np.int32), status="done")
                dress(turn, rng, last=t == turns - 1)
                above = turn.id
                if t < turns - 1:
                    env = tree.extend(above, [3], role="env", status="done", state_key=f"s{rng.integers(1, 4)}")
                    env.scores["step_reward"] = float(rng.integers(0, 2)) / 4
                    above = env.id
            leaf = tree[above]
            leaf.scores.update(reward=float(rng.integers(0, 2)), versus=float(rng.integers(0, 3)) / 2)
            leaf.scores.update(
                reference=float(e == 0),
                flawed=float(rng.integers(0, 2)),
                budget=16.0 * (1 + e % 2),
                tool_mode=float(e % 3),
            )
            leaf.notes["answer"] = str(rng.integers(0, 3))
        trees.append(tree)
    return trees


def plans(rng: np.random.Generator, *, prompts: int = 3, designs: int = 3, executions: int = 3) -> list[Tree]:
    """Trees of two levels: plans by a planner, executions below each."""
    trees: list[Tree] = []
    for p in range(prompts):
        tree = Tree(f"p{p}", [p, 1])
        for _ in range(designs):
            plan = tree.extend(0, [4, 5], status="done", level=1, actor="planner")
            for _ in range(executions):
                run = tree.extend(plan, [6, 7, 8], status="done")
                run.scores["reward"] = float(rng.integers(0, 3)) / 2
        trees.append(tree)
    return trees


def dress(turn: Node, rng: np.random.Generator, *, last: bool) -> None:
    """Give a turn's node every array, score and note a credit can ask for."""
    n = len(turn)
    turn.logp = -rng.gamma(1.0, 0.5, n).astype(np.float32)
    turn.entropy = rng.gamma(1.0, 0.5, n).astype(np.float32)
    turn.top = Top(
        np.tile(np.arange(5, dtype=np.int32), (n, 1)), -np.sort(rng.gamma(2.0, 1.0, (n, 5)), axis=1).astype(np.float32)
    )
    turn.notes.update(
        energy=rng.uniform(0.1, 2.0, n),
        reference=-rng.gamma(1.0, 0.5, n),
        value=rng.uniform(0, 1, n),
        spans={"switch": (0, 1), "subgoal": (1, 2), "action": (2, 3)},
    )
    turn.scores.update(
        switch=float(rng.integers(0, 2)),
        match=float(rng.integers(0, 2)),
        value_low=float(rng.uniform(0, 1)),
        value_high=float(rng.uniform(0, 1)),
        value_term=float(rng.uniform(0, 1)),
    )
    if last or rng.random() < 0.3:
        turn.scores.update(task_reward=float(rng.integers(0, 2)), used_skill=float(rng.integers(0, 2)))
