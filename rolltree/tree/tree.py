"""A tree of runs: what happened and what is planned for one prompt.

Node identity is prefix identity: a node stands for the exact actions from the root to its end, and nothing is ever
keyed by (prompt, position). `cut` splits a run in two without disturbing anything that holds the tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self, Unpack, cast

import numpy as np

from rolltree.tree.node import (
    PER_ACTION,
    Array,
    Event,
    Finish,
    Kind,
    Node,
    NodeFields,
    Role,
    Status,
    TreeError,
    alike,
    as_actions,
    join_actions,
    joined,
    joined_top,
    settle,
)
from rolltree.tree.references import moved


class Tree:
    """One rollout tree. Node ids are small integers in order of creation; node 0 is the prompt, or its end once cut."""

    def __init__(self, id: str, prompt: Sequence[int] | Array, *, task: str = "", item: str = "") -> None:
        self.id = id
        self.task = task
        """Name of the task the prompt came from."""
        self.item = item
        """Stable id of the task's item: the key for groups, ledgers and replay."""
        self.notes: dict[str, Any] = {}
        self.events: list[Event] = []
        self.nodes: dict[int, Node] = {}
        self._next = 0
        self._root = 0
        self._add(None, "prompt", as_actions(prompt), birth="root", actor="task")

    @classmethod
    def empty(cls, id: str, *, task: str = "", item: str = "") -> Self:
        """A tree without any node, for a store that then adopts every one of them, the root first."""
        tree = cls(id, (), task=task, item=item)
        tree.nodes.clear()
        tree._next = 0
        return tree

    # -- reading ---------------------------------------------------------------------------------------------------

    def __getitem__(self, id: int) -> Node:
        try:
            return self.nodes[id]
        except KeyError:
            raise TreeError(f"tree {self.id!r} has no node {id}; its ids run from 0 to {self._next - 1}") from None

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        """Nodes depth first, parents before children, children in order of creation."""
        return self.walk()

    @property
    def root(self) -> Node:
        """The node nothing stands before: the prompt, or the first part of a prompt that was cut."""
        return self.nodes[self._root]

    @property
    def prompt(self) -> Node:
        """Where the prompt ends and rollouts begin."""
        return self.nodes.get(0, self.root)

    def walk(self, node: Node | int | None = None) -> Iterator[Node]:
        """The subtree of a node (of the root unless given) depth first, parents before children."""
        stack = [self._root if node is None else node if isinstance(node, int) else node.id]
        while stack:
            here = self.nodes[stack.pop()]
            yield here
            stack.extend(reversed(here.children))

    def path(self, node: Node | int) -> list[Node]:
        """Nodes from the root to this one."""
        here: Node | None = self[node if isinstance(node, int) else node.id]
        out: list[Node] = []
        while here is not None:
            out.append(here)
            here = None if here.parent is None else self.nodes[here.parent]
        return out[::-1]

    def leaves(self, node: Node | int | None = None) -> list[Node]:
        """Nodes without children below (or at) a node (the root unless given), depth first."""
        return [n for n in self.walk(node) if n.is_leaf]

    def parent(self, node: Node) -> Node | None:
        """The parent, or None at the root."""
        return None if node.parent is None else self.nodes[node.parent]

    def children(self, node: Node) -> list[Node]:
        """The children in order of creation."""
        return [self.nodes[c] for c in node.children]

    def prefix(self, node: Node | int) -> Array:
        """All actions from the root to the end of this node: what an engine is given to continue it.

        Where they have several shapes (a prompt of tokens under latents) it holds one object per action.
        """
        return join_actions([n.actions for n in self.path(node)])

    def depth(self, node: Node | int) -> int:
        """Number of nodes above this one."""
        return len(self.path(node)) - 1

    # -- growing ---------------------------------------------------------------------------------------------------

    def extend(
        self, parent: Node | int, actions: Sequence[int] | Array, *, role: Role = "policy", **fields: Unpack[NodeFields]
    ) -> Node:
        """Add a child run below a node. `trainable` defaults to role = policy; arrays must match the actions' length.

        Scores and state handles that were written on the parent stay there.
        """
        above = self._live(parent, "extend")
        return self._add(above.id, role, as_actions(actions, like=above.actions), **fields)

    def append(self, node: Node, actions: Sequence[int] | Array, **arrays: Any) -> Node:
        """Let a leaf's own actor write on: the same node grows (a resumed partial, a streamed chunk).

        Where only one part has an array, the other part is filled (NaN, version -1, keep True, credit 0); alternatives
        (`top`) cannot be filled and are dropped. A pruned leaf may still take what was in flight when it was pruned.
        """
        if node.status == "failed":
            self._live(node, "append to")
        where = f"node {node.id} of tree {self.id!r}"
        if node.children:
            raise TreeError(f"cannot append to {where}: it has children; extend it instead")
        unknown = arrays.keys() - {*PER_ACTION, "top"}
        if unknown:
            raise TreeError(f"append does not know the array {min(unknown)!r}; known: {', '.join(PER_ACTION)}, top")
        more = as_actions(actions, like=node.actions)
        before, added = len(node.actions), len(more)
        if before and added and more.shape[1:] != node.actions.shape[1:]:
            raise TreeError(f"{where}: an action has shape {node.actions.shape[1:]}, an appended one {more.shape[1:]}")
        if before and added and not alike(more, node.actions):
            raise TreeError(f"{where}: its actions are {node.actions.dtype}, the appended ones {more.dtype}")
        grown = {n: joined(n, getattr(node, n), before, arrays.get(n), added, where=where) for n in PER_ACTION}
        grown["actions"] = np.concatenate([node.actions, more]) if before else more
        top = joined_top(where, node.top, before, arrays.get("top"), added)
        if added:
            for name, array in grown.items():
                setattr(node, name, array)
            node.top = top
        return node

    def cut(self, node: Node | int, k: int) -> Node:
        """Make the first k actions of a node its parent and return that head. The tail keeps the node's identity.

        Ids, scores, state and status of the tail do not change, so whoever holds the node still holds the same leaf.
        Cutting at the end returns the node and cutting at 0 the parent: the same prefix is never cut twice.
        """
        tail = self[node if isinstance(node, int) else node.id]
        if not 0 <= k <= len(tail):
            raise TreeError(f"cannot cut node {tail.id} of tree {self.id!r} at {k}: it has {len(tail)} actions")
        if k == len(tail):
            return tail
        if k == 0:
            above = self.parent(tail)
            if above is None:
                raise TreeError(f"cannot cut the root of tree {self.id!r} at 0: nothing stands before the prompt")
            return above
        head = self._head_of(tail, k)
        tail.actions = tail.actions[k:]
        for name in PER_ACTION:
            array = getattr(tail, name)
            if array is not None:
                setattr(tail, name, array[k:])
        if tail.top is not None:
            tail.top = tail.top.cut(k, tail.top.ids.shape[0])
        self.event("cut", tail, f"the first {k} actions became node {head.id}", head=head.id, at_action=k)
        return head

    def open_root(self) -> Node:
        """Put an empty node before everything, so that another context may begin otherwise; returns it."""
        head = self._head_of(self.root, 0)
        self.event("cut", head, "another context begins otherwise", head=head.id, at_action=0)
        return head

    def graft(self, parent: Node | int, source: Tree, node: Node | int) -> Node:
        """Copy a stored branch (a node and all below it) under a node of this tree; returns the copy of its top.

        Credit and usage belong to the step that gave them and are not copied; everything else is.
        """
        top = self._live(parent, "graft below")
        copies: dict[int, int] = {}
        first: Node | None = None
        for n in list(source.walk(node)):
            above = top.id if first is None else copies[cast(int, n.parent)]
            copy = self._add(above, n.role, n.actions.copy(), **_carried(n))
            if first is None:
                first, copy.birth = copy, "graft"
            copies[n.id] = copy.id
        moved((self.nodes[i] for i in copies.values()), copies)
        assert first is not None
        self.event("graft", first, f"branch {source.id}/{source[node if isinstance(node, int) else node.id].id}",
                   source=source.id, nodes=len(copies))  # fmt: skip
        return first

    def splice(self, leaf: Node, start: Node, replacement: Node | None, *, why: str) -> Node:
        """Copy a leaf's path with everything from `start` up to (not including) `replacement` left out.

        What stood after the removed span was generated in another context, so everything that depends on the context
        (`logp`, `sampling_logprob`, `entropy`, `top`) is set to None there: log-probs must be recomputed and
        importance correction must not be applied. The original leaf stays. Without a replacement the node before the
        span is returned.
        """
        path = self.path(leaf)
        ids = [n.id for n in path]
        if start.parent is None:
            raise TreeError(f"cannot splice leaf {leaf.id} of tree {self.id!r} from its root on: nothing would remain")
        if start.id not in ids:
            raise TreeError(f"cannot splice: node {start.id} is not on the path of leaf {leaf.id} in tree {self.id!r}")
        resume = len(ids) if replacement is None else _position(ids, replacement.id, self.id, leaf.id)
        if resume <= ids.index(start.id):
            raise TreeError(f"cannot splice leaf {leaf.id} of tree {self.id!r}: the replacement precedes the span")
        above = self._live(start.parent, "splice below")
        for n in path[resume:]:
            fields = _carried(n)
            fields.update(birth="splice", logp=None, sampling_logprob=None, entropy=None, top=None)
            above = self._add(above.id, n.role, n.actions.copy(), **fields)
        self.event("splice", above, why, removed=ids[ids.index(start.id) : resume], original=leaf.id)
        return above

    # -- deciding --------------------------------------------------------------------------------------------------

    def prune(self, node: Node, why: str, **numbers: Any) -> list[Node]:
        """Mark a node and everything below it pruned. What it cost stays counted; returns the nodes newly pruned."""
        hit = [n for n in self.walk(node) if n.status not in ("pruned", "failed")]
        for n in hit:
            n.status = "pruned"
        self.event("prune", node, why, nodes=len(hit), **numbers)
        return hit

    def pause(self, node: Node, why: str, **numbers: Any) -> None:
        """Set an open leaf aside; `resume` continues it, in this run or a later one."""
        if node.ended:
            raise TreeError(f"cannot pause node {node.id} of tree {self.id!r}: it is {node.status}")
        node.status = "paused"
        self.event("pause", node, why, **numbers)

    def resume(self, node: Node, why: str = "continued", **numbers: Any) -> None:
        """Open a paused leaf again."""
        if node.status != "paused":
            raise TreeError(f"cannot resume node {node.id} of tree {self.id!r}: it is {node.status}, not paused")
        node.status = "open"
        self.event("resume", node, why, **numbers)

    def close(self, node: Node, status: Status, finish: Finish | None, why: str = "", **numbers: Any) -> None:
        """End a leaf with a status and a reason."""
        node.status, node.finish = status, finish
        self.event("fail" if status == "failed" else "stop", node, why or str(finish), **numbers)

    def event(self, kind: Kind, node: Node | None, why: str = "", /, at: float = 0.0, **numbers: Any) -> Event:
        """Record a decision."""
        event = Event(kind, None if node is None else node.id, why, numbers, at)
        self.events.append(event)
        return event

    # -- inside ----------------------------------------------------------------------------------------------------

    def _live(self, node: Node | int, doing: str) -> Node:
        here = self[node if isinstance(node, int) else node.id]
        if here.status in ("pruned", "failed"):
            raise TreeError(
                f"cannot {doing} node {here.id} of tree {self.id!r}: it is {here.status}; "
                "use one of its live ancestors instead"
            )
        return here

    def _add(self, parent: int | None, role: Role, actions: Array, **fields: Unpack[NodeFields]) -> Node:
        if "trainable" not in fields:
            fields["trainable"] = role == "policy"
        return self.adopt(Node(self._next, parent, role, actions, **fields))

    def adopt(self, node: Node) -> Node:
        """Insert a complete node, as read from a store, below its parent (which must stand already); keeps its id."""
        where = f"node {node.id} of tree {self.id!r}"
        if node.id in self.nodes:
            raise TreeError(f"tree {self.id!r} has two nodes with id {node.id}")
        if node.parent is None and self.nodes:
            raise TreeError(f"{where} has no parent, but the tree already has the root {self._root}")
        if node.parent is not None and node.parent not in self.nodes:
            raise TreeError(f"{where} names parent {node.parent}, which does not precede it")
        settle(where, node)
        node.children = []
        self.nodes[node.id] = node
        self._next = max(self._next, node.id + 1)
        if node.parent is None:
            self._root = node.id
        else:
            self.nodes[node.parent].children.append(node.id)
        return node

    def _head_of(self, tail: Node, k: int) -> Node:
        head = Node(
            self._next, tail.parent, tail.role, tail.actions[:k], children=[tail.id], actor=tail.actor,
            level=tail.level, trainable=tail.trainable, forced=tail.forced, birth=tail.birth,
            status="pruned" if tail.status == "pruned" else "done",
            top=None if tail.top is None else tail.top.cut(0, k),
        )  # fmt: skip
        for name in PER_ACTION:
            array = getattr(tail, name)
            if array is not None:
                setattr(head, name, array[:k])
        self._next += 1
        self.nodes[head.id] = head
        if tail.parent is None:
            self._root = head.id
        else:
            siblings = self.nodes[tail.parent].children
            siblings[siblings.index(tail.id)] = head.id
        tail.parent = head.id
        tail.birth = "boundary"
        return head


def _position(ids: list[int], node: int, tree: str, leaf: int) -> int:
    if node not in ids:
        raise TreeError(f"cannot splice: node {node} is not on the path of leaf {leaf} in tree {tree!r}")
    return ids.index(node)


def _carried(n: Node) -> NodeFields:
    return {
        "actor": n.actor,
        "level": n.level,
        "trainable": n.trainable,
        "forced": n.forced,
        "birth": n.birth,
        "status": n.status,
        "finish": n.finish,
        "scores": dict(n.scores),
        "state": n.state,
        "state_key": n.state_key,
        "notes": dict(n.notes),
        "logp": _copied(n.logp),
        "sampling_logprob": _copied(n.sampling_logprob),
        "entropy": _copied(n.entropy),
        "top": n.top,
        "version": _copied(n.version),
        "keep": _copied(n.keep),
    }


def _copied(array: Any) -> Any:
    return None if array is None else array.copy()
