"""A problem small enough to enumerate: four letters, each path's outcome fixed, every value exact."""

from __future__ import annotations

import numpy as np

from rolltree.engine.tabular import enumerate_paths
from rolltree.generate.random import mix
from rolltree.testing.tiny import policy
from rolltree.tree import Tree

PROMPT = (3, 7)
DEEP = 3


def row(prefix: tuple[int, ...]) -> list[float]:
    """The policy of the tiny tasks, over four letters."""
    four = np.array(policy(prefix)[:4]) ** 2
    return list(four / four.sum())


def solved(path: tuple[int, ...]) -> float:
    """Right or wrong by a hash in which early tokens weigh more."""
    first, second, third = (mix(i, *path[: i + 1]) % 97 / 97 for i in range(DEEP))
    return float(0.5 * first + 0.3 * second + 0.2 * third > 0.5)


def paths() -> dict[tuple[int, ...], float]:
    return dict(enumerate_paths(row, DEEP, prefix=PROMPT))


def value(prefix: tuple[int, ...]) -> float:
    """Chance of success from here on, by enumeration."""
    return sum(
        p * solved(prefix + rest) for rest, p in enumerate_paths(row, DEEP - len(prefix), prefix=PROMPT + prefix)
    )


def leaf(tree: Tree, above, actions, reward: float, **more):
    return tree.extend(above, list(actions), status="done", finish="eos", scores={"reward": reward}, **more)


def whole_tree() -> tuple[Tree, np.ndarray]:
    """Every path as a tree of single tokens, with the probability of each leaf."""
    tree, known = Tree("all", list(PROMPT)), {(): 0}
    for path in sorted(paths()):
        for i in range(1, DEEP + 1):
            if path[:i] not in known:
                end = {"status": "done", "finish": "eos", "scores": {"reward": solved(path)}} if i == DEEP else {}
                known[path[:i]] = tree.extend(known[path[: i - 1]], [path[i - 1]], **end).id
    here = {node: path for path, node in known.items()}
    chance = paths()
    return tree, np.array([chance[here[n.id]] for n in tree.walk() if n.is_leaf])


def drawn(rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    chance = paths()
    keys = list(chance)
    return [keys[i] for i in rng.choice(len(keys), count, p=np.array(list(chance.values())))]


def flat_tree(rng: np.random.Generator, count: int) -> Tree:
    """Independent samples, each a run of its own, as a group has them."""
    tree = Tree("flat", list(PROMPT))
    for path in drawn(rng, count):
        leaf(tree, 0, path, solved(path))
    return tree
