"""What a hand stands on: the tree it is bound to, reading it, and recording decisions in it.

`decode`, `growing` and `outside` act through this; `Hand` adds them up to what a strategy holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Channel, Codec, Engine, exact_text, token_codec
from rolltree.generate.random import Stream
from rolltree.generate.setting import HandError, Setting, error_line, place_of
from rolltree.task.protocol import Artefact, Item, Task
from rolltree.task.spoken import Spoken
from rolltree.tree import Event, Finish, Forest, Node, Tree
from rolltree.tree.node import Array, FloatArray, Kind, join_actions


class Recorder:
    """Reads one tree under one budget and records decisions in it."""

    def __init__(
        self, setting: Setting, budget: Budget, tree: Tree | None = None, *, actor: str = "policy", level: int = 0
    ) -> None:
        self.setting = setting
        self.budget = budget
        self.actor = actor
        self.level = level
        self._tree = tree
        self.rng: Stream = setting.rng if tree is None else setting.rng.child("tree", tree.task, tree.id)
        """The stream of this tree (of the run, where none is bound), addressed by name: `hand.rng.child("fork", 3)`."""

    # -- what it is bound to ---------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """What writes: this actor's own engine, or the run's. Strategies read its capabilities and leave it alone."""
        setting = self.setting
        return setting.roles.get(self.actor) or setting.peers.get(self.actor) or setting.engine

    @property
    def task(self) -> Task:
        """What is asked: the run's task, or what a role is asked in its side tree."""
        side = self.setting.side_tasks
        return side[self._tree.id] if self._tree is not None and self._tree.id in side else self.setting.task

    @property
    def limit(self) -> int:
        """Most policy tokens on one path: the run's, or of a role's answer."""
        return self.setting.limit if self.task is self.setting.task else self.task.max_tokens

    @property
    def max_turns(self) -> int:
        """Most environment steps of a rollout: the task's, or as few as were ordered."""
        most, ordered = self.task.max_turns, self.setting.turns
        return most if ordered is None or self.task is not self.setting.task else min(most, ordered)

    @property
    def channel(self) -> Channel:
        """Observations to actions and back: one for all engines that write in a tree; a role's may be its own."""
        return self._writes.codec

    @property
    def codec(self) -> Codec:
        """The channel of a run whose policy writes tokens; every other run is refused here."""
        return token_codec(self._writes, "what grows this tree")

    @property
    def _writes(self) -> Engine:
        """The engine of the role that writes here, or the run's."""
        return self.setting.roles.get(self.actor, self.setting.engine)

    @property
    def forest(self) -> Forest:
        """All trees of this run."""
        return self.setting.forest

    @property
    def interactive(self) -> bool:
        """Whether an environment answers the policy's turns."""
        return self.task.max_turns > 0

    @property
    def tree(self) -> Tree:
        """The tree this hand acts on."""
        if self._tree is None:
            raise HandError("this hand is bound to no tree; take hand.on(tree) first")
        return self._tree

    @property
    def item(self) -> Item:
        """The question this tree grows from."""
        try:
            return self.setting.items[self.tree.id]
        except KeyError:
            raise HandError(f"tree {self.tree.id!r} has no item here; plant it with hand.plant(item)") from None

    # -- reading ---------------------------------------------------------------------------------------------------

    def text(self, node: Node) -> Artefact:
        """What was made between the prompt (the last one, where a rollout was asked for again) and a node's end."""
        made = self._decoded(latest_rollout(self.tree.path(node)))
        item = self.setting.items.get(self.tree.id)
        # The token that ends a chat model's turn is no part of what it said.
        return made.removesuffix(item.prompt.speaker.ends) if item and isinstance(item.prompt, Spoken) else made

    def turn(self, node: Node) -> Artefact:
        """What was written since the environment last spoke."""
        return self.read(self.turn_actions(node))

    def turn_actions(self, node: Node) -> Array:
        """The tokens of `turn`."""
        path = self.tree.path(node)
        start = max(i for i, n in enumerate(path) if n.role in ("env", "prompt"))
        return join_actions([path[start].actions[:0], *(n.actions for n in path[start + 1 :])])

    def hidden(self, node: Node) -> FloatArray:
        """Last hidden state of a run extended with want={"hidden"}."""
        try:
            return self.setting.hidden[self.tree.id, node.id]
        except KeyError:
            raise HandError(f"node {node.id} has no hidden state; extend it with want={{'hidden'}}") from None

    # -- deciding --------------------------------------------------------------------------------------------------

    def prune(self, node: Node, *, why: str, **numbers: Any) -> list[Node]:
        """Drop a node and all below it; what is being written there stops. What it cost stays counted."""
        self._halt(node)
        return self.tree.prune(node, why, at=self.setting.clock(), **numbers)

    def pause(self, node: Node, why: str, **numbers: Any) -> None:
        """Set an open leaf aside for a later round or run; what is being written in it stops and is kept."""
        self._halt(node)
        self.tree.pause(node, why, at=self.setting.clock(), **numbers)

    def close(self, node: Node, finish: Finish, why: str = "", **numbers: Any) -> None:
        """End a leaf with a reason."""
        self.tree.close(node, "done", finish, why, at=self.setting.clock(), **numbers)

    def fail(self, node: Node, what: str, error: Exception, **numbers: Any) -> None:
        """Mark a node failed: something of ours broke, so it has no outcome."""
        why, numbers = f"{what}: {error_line(error)}", {**numbers, "place": place_of(error)}
        if node.status == "pruned":
            self.event("fail", node, why, error=type(error).__name__, **numbers)
            return
        self.tree.close(node, "failed", "error", why, at=self.setting.clock(), error=type(error).__name__, **numbers)

    def event(self, kind: Kind, node: Node | None, why: str = "", /, **numbers: Any) -> Event:
        """Record a decision with the numbers that caused it."""
        return self.tree.event(kind, node, why, at=self.setting.clock(), **numbers)

    def retried(self, node: Node | None) -> Callable[[str, int], None]:
        """What records a retry at a node."""
        return lambda why, tries: _forget(self.event("retry", node, why, tries=tries))

    # -- inside ----------------------------------------------------------------------------------------------------

    def _halt(self, node: Node) -> None:
        for below in self.tree.walk(node):
            run = self.setting.runs.get((self.tree.id, below.id))
            if run is not None:
                run.stop("abort")

    def _decoded(self, nodes: Sequence[Node]) -> Artefact:
        return self.read(join_actions([n.actions for n in nodes])) if nodes else ""

    def read(self, actions: Array) -> Artefact:
        """What actions have made, as the task reads it: one with `exact_text` sees special tokens but a last eos."""
        if not getattr(self.task, "exact_text", False):
            return self.channel.decode(actions)
        ended = len(actions) > 0 and int(actions[-1]) == self.codec.eos_id
        return exact_text(self.codec, actions[:-1] if ended else actions)


def latest_rollout(path: Sequence[Node]) -> Sequence[Node]:
    """The part of a path behind its last prompt: a rollout that was asked for again is one of its own."""
    return path[1 + max(i for i, node in enumerate(path) if node.role == "prompt") :]


def _forget(_: object) -> None: ...
