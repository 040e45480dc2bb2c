"""The rollouts of an agent in one tree: each session of a server, or each run of an agent, with how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.generate.aside import ASIDE
from rolltree.tree import Event
from rolltree.view.calls import NEW, ShownCall, TreeCalls
from rolltree.view.outline import Outline
from rolltree.view.rows import events_of, records

MOST_ROLLOUTS = 300


@dataclass(frozen=True)
class ShownSession:
    """One rollout of an agent."""

    name: str
    node: int | None
    """Where it ends; None for a session, which may end in several contexts."""
    calls: int
    contexts: int
    shortened: int
    """Calls whose history was shortened."""
    tokens: int
    thrown: int
    """Tokens of answers that nothing was built on and nothing is learned from."""
    forked: int | None
    """At which of its calls it was forked off another rollout, by replay; None where it began anew."""
    reward: float
    end: str


def sessions_of(tree: Outline, known: TreeCalls) -> list[ShownSession]:
    """The sessions of a tree; where it has none, the rollouts of its agent."""
    events = events_of(tree.archive, tree.index)
    names = dict.fromkeys(str(e.numbers["session"]) for e in events if e.kind == "start" and "session" in e.numbers)
    if names:
        return [_session(name, [c for c in known.calls if c.session == name], events) for name in names]
    return _rollouts(tree, known, events)


def _session(name: str, calls: Sequence[ShownCall], events: Sequence[Event]) -> ShownSession:
    replies = [reply for call in calls for reply in call.replies]
    ends = [e for e in events if e.kind in ("verify", "stop", "fail") and _of(e, name)]
    rewards = [float(e.numbers["reward"]) for e in ends if "reward" in e.numbers]
    return ShownSession(
        name, None, len(calls), sum(call.how in NEW for call in calls), sum(call.how == "shortened" for call in calls),
        sum(reply.tokens for reply in replies), sum(r.tokens for r in replies if r.end.startswith("dropped")), None,
        rewards[-1] if rewards else np.nan, ends[-1].why if ends else "open",
    )  # fmt: skip


def _of(event: Event, name: str) -> bool:
    return event.numbers.get("session") == name or (event.node is None and event.why.startswith(f"{name}: "))


def _rollouts(tree: Outline, known: TreeCalls, events: Sequence[Event]) -> list[ShownSession]:
    leaves = np.flatnonzero(tree.is_leaf)[:MOST_ROLLOUTS].tolist()
    notes = [one.notes for one in records(tree.archive, [tree.lo + row for row in leaves])]
    apart: dict[int, list[str]] = {}
    why: dict[int, str] = {}
    for event in events:
        if event.node is not None and event.kind == "act" and "how" in event.numbers:
            apart.setdefault(event.node, []).append(str(event.numbers["how"]))
        if event.node is not None and event.kind in ("fail", "prune"):
            why[event.node] = event.why
    by_head = {reply.row: (call, i) for call in known.calls for i, reply in enumerate(call.replies)}
    return [
        _rollout(tree, row, by_head, apart, why) for row, note in zip(leaves, notes, strict=True) if not note.get(ASIDE)
    ]


def _rollout(
    tree: Outline, row: int, by_head: Mapping[int, tuple[ShownCall, int]], apart: Mapping[int, Sequence[str]],
    why: Mapping[int, str],
) -> ShownSession:  # fmt: skip
    path, node = tree.path(row), int(tree.ids[row])
    mine = [by_head[at] for at in path if at in by_head]
    own = [how for at in path for how in apart.get(int(tree.ids[at]), ())]
    forked = [call.number for call, place in mine[1:] if place > 0]
    usage, reward = tree.word("usage", row), float(tree.rewards[row])
    policy = sum(int(tree.length[at]) for at in path if tree.word("role", at) == "policy")
    end = why.get(node) or usage or tree.word("finish", row) or tree.word("status", row)
    lost = policy if usage.startswith("dropped") else 0
    return ShownSession(
        f"rollout to node {node}", node, len(mine) + len(own), 1 + sum(how in NEW for how in own),
        own.count("shortened"), policy, lost, forked[-1] if forked else None, reward, end,
    )  # fmt: skip
