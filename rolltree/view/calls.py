"""The calls of an agent in one tree: what was asked where, how it stands to the calls before, and what came of it.

A call ends where the policy begins to write. `rolltree serve` names its session and number in the tree's events and
notes. With `--agent` the tree is the record: turns follow one another, and contexts of their own carry a note.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from rolltree.analysis.text import Pieces
from rolltree.tree import Event
from rolltree.view.outline import Outline
from rolltree.view.rows import Record, events_of, records

MOST = 2000
"""Nodes of the policy whose calls are listed."""
NEW = ("begins", "branches off", "edited", "shortened")
"""Calls that begin a context."""
EXCERPT = 60


@dataclass(frozen=True)
class CallReply:
    """One answer to a call."""

    row: int
    node: int
    tokens: int
    birth: str
    text: str
    """How it begins."""
    end: str
    """What became of it: "goes on" where something was built on it, else how it ended."""


@dataclass(frozen=True)
class ShownCall:
    """One call."""

    session: str
    """Of `rolltree serve`; "" where rollouts are an agent's."""
    number: int
    how: str
    asked: int
    """The node its prompt ends with."""
    row: int
    prompt: int
    """Tokens of the whole prompt."""
    sampled: int
    """Those of them that the policy sampled before, as it sampled them."""
    replies: tuple[CallReply, ...]
    rewritten: bool
    """Whether the template wrote earlier turns in another way."""
    why: tuple[str, ...]
    """What else was said of it: a choice, an answer that was thrown away, a failure."""


@dataclass(frozen=True)
class TreeCalls:
    """All calls of one tree."""

    calls: tuple[ShownCall, ...]
    left_out: int
    """Nodes of the policy that are not looked at."""


def is_agents(task: str, events: Sequence[Event]) -> bool:
    """Whether an agent or a client made the calls of a tree."""
    return task.startswith("agent:") or any(e.kind == "act" and "session" in e.numbers for e in events)


def calls_of(tree: Outline, pieces: Pieces) -> TreeCalls:
    """The calls of a tree, in the order they were asked where that is known, else along the tree."""
    reader = _Reader(tree, pieces, events_of(tree.archive, tree.index))
    calls = sorted(reader.calls(), key=lambda call: (call.session, call.number if call.session else call.row))
    return TreeCalls(tuple(calls), reader.left_out)


class _Reader:
    def __init__(self, tree: Outline, pieces: Pieces, events: Sequence[Event]) -> None:
        self.tree, self.pieces = tree, pieces
        self.policy = np.array([tree.word("role", row) == "policy" for row in range(len(tree))], np.bool_)
        rows = np.flatnonzero(self.policy).tolist()
        self.left_out = max(0, len(rows) - MOST)
        self._children: dict[int, list[int]] = {}
        for row, above in enumerate(tree.parent.tolist()):
            self._children.setdefault(above, []).append(row)
        kept = rows[:MOST]
        self.known: dict[int, Record] = dict(zip(kept, records(tree.archive, [tree.lo + r for r in kept]), strict=True))
        self.events: dict[int, list[Event]] = {}
        for event in events:
            if event.node is not None:
                self.events.setdefault(event.node, []).append(event)

    def below(self, row: int) -> list[int]:
        """Rows of a node's children."""
        return self._children.get(row, [])

    def calls(self) -> Iterator[ShownCall]:
        """Place after place."""
        places: dict[int, list[int]] = {}
        for row in self.known:
            above = int(self.tree.parent[row])
            if above >= 0 and not self.policy[above]:
                places.setdefault(above, []).append(row)
        for place, heads in places.items():
            yield from self._at(place, heads)

    def _at(self, place: int, heads: Sequence[int]) -> Iterator[ShownCall]:
        """The calls whose prompts end with one node: told apart by what their answers say."""
        told: dict[tuple[Any, ...], list[int]] = {}
        for head in heads:
            notes = self._notes(head)
            told.setdefault((notes.get("session", ""), notes.get("call"), notes.get("how")), []).append(head)
        here = self.events.get(int(self.tree.ids[place]), [])
        asked = {(e.numbers["session"], e.numbers["call"]): e for e in here if e.kind == "act" and "call" in e.numbers}
        path = self.tree.path(place)
        first = not any(self.policy[row] for row in path)
        for (session, named, word), mine in told.items():
            event = asked.get((session, named))
            if event is not None:
                number, how = named, event.numbers.get("how", "")
                sampled = event.numbers.get("sampled", 0)
            else:
                number = self._notes(mine[0]).get("turn", self._turn(path)) if named is None else named
                how = word or ("begins" if first else "goes on")
                sampled = sum(int(self.tree.length[row]) for row in path if self.policy[row])
            about = [e for row in self._answer(mine) for e in self.events.get(int(self.tree.ids[row]), [])]
            kinds = ("select", "drop", "prune", "fail")
            yield ShownCall(
                session, int(number or 0), how, int(self.tree.ids[place]), place,
                sum(int(self.tree.length[row]) for row in path), sampled,
                tuple(self._reply(head) for head in mine),
                any(self.tree.word("role", row) == "template" for row in path),
                tuple(dict.fromkeys(e.why for e in (*about, *here) if e.kind in kinds and e.why)),
            )  # fmt: skip

    def _notes(self, head: int) -> Mapping[str, Any]:
        """Of the answer that begins here; a cut leaves them with its last part."""
        here = head
        while True:
            notes = self.known[here].notes if here in self.known else {}
            below = [c for c in self.below(here) if self.policy[c]]
            if "how" in notes or "call" in notes or len(below) != 1 or not self.policy[here]:
                return notes
            here = below[0]

    def _answer(self, heads: Sequence[int]) -> Iterator[int]:
        """The rows of answers: what the policy wrote in one go, forks inside of it too."""
        waiting = list(reversed(heads))
        while waiting:
            row = waiting.pop()
            yield row
            waiting += [c for c in reversed(self.below(row)) if self.policy[c]]

    def _reply(self, head: int) -> CallReply:
        rows = list(self._answer([head]))
        heard = [c for row in rows for c in self.below(row) if not self.policy[c]]
        tokens = sum(int(self.tree.length[row]) for row in rows)
        if any(self.tree.length[c] or not self.tree.is_leaf[c] for c in heard):
            end = "goes on"
        else:
            last = (heard or rows)[-1]  # an agent that ends answers with no token
            end = self.tree.word("usage", last) or self.tree.word("finish", last) or self.tree.word("status", last)
            if np.isfinite(self.tree.rewards[last]):
                end = f"{end}, reward {self.tree.rewards[last]:g}"
        node, birth = int(self.tree.ids[head]), self.tree.word("birth", head)
        return CallReply(head, node, tokens, birth, self._text(head), end)

    def _turn(self, path: Sequence[int]) -> int:
        """How many calls of a rollout were answered before, those in contexts of their own too."""
        turns = sum(bool(self.policy[row] and not self.policy[after]) for row, after in pairwise(path))
        apart = (e for row in path for e in self.events.get(int(self.tree.ids[row]), []))
        return turns + sum(e.kind == "act" and "turn" in e.numbers for e in apart)

    def _text(self, head: int) -> str:
        text = "".join(self.pieces.text(self.known[r].node.actions) for r in self._answer([head]) if r in self.known)
        return text[:EXCERPT].replace("\n", "⏎") + ("…" if len(text) > EXCERPT else "")
