"""Rollouts that call a tool, for shapers that pay for calls."""

from __future__ import annotations

from rolltree.tree import Tree


def session(results, *, ended=True, reward=1.0, exact=0.0, entities=0.5):
    """A rollout with these results of its calls (None = it failed), which then ends by itself or not."""
    tree = Tree("t", [0], task="sql")
    here = tree.root
    for result in results:
        call = tree.extend(here, [1, 2], status="done")
        here = tree.extend(call, [9] if result is None else [result], role="env", notes={"failed": result is None})
    last = tree.extend(here, [3], status="done")
    leaf = tree.extend(last, [], role="env") if ended else last
    tree.close(leaf, "done", "stop" if ended else "length")
    leaf.scores.update(reward=reward, exact=exact, entities=entities)
    return tree, leaf


def shaped(results, shaper, **knobs):
    tree, leaf = session(results, **knobs)
    for _ in range(2):  # idempotent
        shaper(tree, 10)
    return leaf.scores
