"""Contexts of their own in the tree of their rollout, when nobody grows it any more.

Each leaves the tree at its last common token: in the prompt, which is then cut, or in what its own rollout sampled.
Its last turns get the mean outcome of the rollouts that came of it, so that each sampled token is trained once for each
context it was sampled in. A context whose rollouts have no outcome has none either, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from rolltree.generate.aside import Aside, descend, shared
from rolltree.generate.random import MARK
from rolltree.tree import Node, Tree

ASIDE = "aside"
"""Key in a leaf's notes: it ends a context of its own, and is no rollout that was asked for."""
NO_OUTCOME = "its rollout has no outcome"
NOTHING = "dropped: nothing was sampled in this context"


def join(tree: Tree, asides: Iterable[Aside], at: float = 0.0) -> None:
    """Move contexts into the tree they belong to."""
    moved: dict[int, set[int]] = {}
    for aside in asides:
        above = {id(node) for node in tree.path(aside.asked)}
        own = {node.id for node in tree.path(aside.asked)}
        own = own.union(*(ids for asked, ids in moved.items() if asked in above))
        ends = _moved(tree, aside, own)
        moved.setdefault(id(aside.asked), set()).update(
            node.id for end in ends for node in tree.path(end) if node.role == "policy"
        )
        _judge(tree, aside, ends, at)


def _moved(tree: Tree, aside: Aside, own: set[int]) -> list[Node]:
    """Put the contexts where they leave the tree; their leaves."""
    ends = aside.tree.leaves()
    places: dict[int, int] = {}
    for node in list(aside.tree.walk()):
        if node.parent is None:
            continue
        old = node.id
        if node.parent == aside.tree.root.id:
            here, known = _descend(tree, node, own)
            node.actions = node.actions[known:]
            if known and any(one.role == "policy" for one in tree.path(here)):
                node.role = "env"
            node.parent = here.id
        else:
            node.parent = places[node.parent]
        node.notes.pop(MARK, None)
        node.id = max(tree.nodes) + 1
        places[old] = node.id
        tree.adopt(node)
    return [end for end in ends if end.parent is not None]


def _descend(tree: Tree, node: Node, own: set[int]) -> tuple[Node, int]:
    """As far as what was given is the same, and through what the same rollout sampled."""
    root = tree.root
    known = shared(root.actions, node.actions)
    if known < len(root):
        head = tree.cut(root, known) if known else tree.open_root()
        head.scores.update(root.scores)
        return head, known
    here, more = descend(tree, root, node.actions[known:], lambda one: _open_to(tree, one, own))
    return here, known + more


def _open_to(tree: Tree, node: Node, own: set[int]) -> bool:
    """What was given is everybody's; what was sampled is its rollout's, with the heads that were cut off it."""
    if node.status in ("pruned", "failed"):
        return False
    return (
        not node.trainable
        or node.id in own
        or any(tree[child].trainable and _open_to(tree, tree[child], own) for child in node.children)
    )


def _judge(tree: Tree, aside: Aside, ends: Iterable[Node], at: float) -> None:
    """The outcome of the rollouts in which these contexts were asked."""
    leaves = [leaf for leaf in tree.leaves(aside.asked) if leaf.status == "done" and not leaf.notes.get(ASIDE)]
    found = [leaf.scores["reward"] for leaf in leaves if "reward" in leaf.scores and not leaf.usage]
    failed = any(leaf.status == "failed" for leaf in tree.leaves(aside.asked))
    for end in ends:
        end.notes[ASIDE] = True
        if end.role != "policy" or not len(end):
            end.status, end.usage = "done", end.usage or NOTHING
        elif end.usage or end.status in ("failed", "pruned"):
            end.status = "done" if end.status in ("open", "paused") else end.status
        elif found:
            end.status, end.finish = "done", end.finish or "stop"
            reward = sum(found) / len(found)
            end.scores["reward"] = reward
            tree.event("verify", end, "the outcome of the rollout that asked it", at=at, reward=reward)
        elif failed:
            tree.close(end, "failed", "error", NO_OUTCOME, at=at)
        else:
            tree.prune(end, NO_OUTCOME, at=at)
