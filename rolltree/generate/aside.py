"""Contexts of their own: what an environment asks the policy in the middle of a turn of its own.

An agent may start helpers, shorten its history, change it or ask again. Such a call does not go on from the rollout's
last token, so it cannot stand below it. It is answered before the environment answers the turn, in a tree of its own,
from the very ids that earlier turns sampled; `join` then puts these contexts into the rollout's tree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rolltree.engine.protocol import EngineError
from rolltree.engine.texts import tokens_of
from rolltree.generate.decode import abandon, finish_request, open_requests
from rolltree.generate.patience import Gone
from rolltree.generate.random import lineage
from rolltree.generate.recorder import Recorder
from rolltree.generate.requests import Continuations
from rolltree.task.items import digest
from rolltree.task.protocol import Reply, Said
from rolltree.tree import Node, Tree
from rolltree.tree.node import Array

AGAIN = "dropped: asked again"
Step = Callable[[Recorder, Node, object, str], Awaitable[Reply | Gone | None]]


@dataclass(repr=False)
class Aside:
    """The contexts that were asked while one turn waited for its answer."""

    asked: Node
    """The end of that turn."""
    tree: Tree
    """Below a bare root."""
    said: list[Array] = field(default_factory=list[Array])
    """The policy's turns in them, as sampled, in order."""


async def answered(hand: Recorder, node: Node, reply: Reply, step: Step) -> Reply | Gone | None:
    """Answer in contexts of their own until the environment answers the turn itself; None at a budget's end."""
    count = len(hand.setting.asides.get(hand.tree.id, ()))
    tree = Tree(f"{hand.tree.id}/{lineage(hand.tree, node)}/{len(hand.tree.prefix(node))}", (), task=hand.tree.task)
    aside = Aside(node, tree)
    hand.setting.asides.setdefault(hand.tree.id, []).append(aside)
    before = turns_said(hand, node)
    last: Reply | Gone | None = reply
    while isinstance(last, Reply) and last.aside is not None:
        turns = len(before) + len(aside.said)
        if turns >= hand.max_turns:
            hand.close(node, "depth", f"the limit of {hand.max_turns} environment steps")
            return None
        end = await _sampled(hand, aside, last.aside, [*before, *aside.said])
        if end is None:
            hand.close(node, "budget", "nothing was left for a context of its own")
            return None
        if end.status == "paused":
            hand.pause(node, "a context of its own was stopped")
            return None
        if end.status == "failed":
            return Gone("a context of its own", EngineError("the engine failed in a context of its own"), 1)
        prompt = len(tree.prefix(end)) - len(end)
        numbers = {"tree": count, "turn": turns, "prompt": prompt, "tokens": len(end), "how": last.how}
        hand.event("act", node, "answered in a context of its own", **numbers)
        end.notes.update(turn=turns, how=last.how, rollout=node.id)
        aside.said.append(end.actions)
        text = Recorder(hand.setting, hand.budget, tree).read(end.actions)
        last = await step(hand, node, last.state, text)
    return last


def turns_said(hand: Recorder, node: Node) -> list[Array]:
    """All turns of the policy up to the end of this one, those in contexts of their own at their place in time."""
    apart = {id(aside.asked): aside.said for aside in hand.setting.asides.get(hand.tree.id, ())}
    out: list[Array] = []
    turn: list[Array] = []
    last: Node | None = None
    for here in hand.tree.path(node):
        if here.role == "prompt":
            out, turn, last = [], [], None
        elif here.role == "env":
            out.append(_joined(turn))
            out += apart.get(id(last), [])
            turn, last = [], None
        else:
            turn.append(here.actions)
            last = here
    return [*out, _joined(turn)]


async def _sampled(hand: Recorder, aside: Aside, parts: Sequence[str | Said], said: Sequence[Array]) -> Node | None:
    """One answer behind a context, which shares with earlier ones what it can."""
    tree = aside.tree
    mine = Recorder(hand.setting, hand.budget, tree, actor=hand.actor, level=hand.level)
    ids = np.concatenate([np.zeros(0, np.int32), *(_tokens(hand, part, said) for part in parts)]).astype(np.int32)
    here, known = descend(tree, tree.root, ids)
    if known < len(ids) or here.role == "policy" or here.children or here.parent is None:
        for one in tree.children(here) if known == len(ids) else ():
            first = one if one.role == "policy" or len(one) or one.is_leaf else tree.children(one)[0]
            if first.role == "policy" and first.is_leaf:
                first.usage = AGAIN
        behind = any(n.role == "policy" for n in tree.path(here))
        here = tree.extend(here, ids[known:], role="env" if behind else "prompt", actor="env", birth="boundary")
        here.state_key = f"{hand.tree.item}/aside/{digest(ids.tobytes().hex())}"
    here.status = "done"
    asked = aside.asked
    want = ({"entropy"} if asked.entropy is not None else set[str]()) | (
        {f"top:{asked.top.logp.shape[1]}"} if asked.top is not None else set[str]()
    )
    opened = open_requests(mine, here, Continuations(1, {}, frozenset(want)))
    try:
        for pending in opened:
            await finish_request(mine, pending)
    except BaseException:
        for pending in opened:
            await abandon(mine, pending)
        raise
    return opened[0].node if opened else None


def _tokens(hand: Recorder, part: str | Said, said: Sequence[Array]) -> Array:
    """A text encoded, or what was sampled as it was sampled."""
    if isinstance(part, str):
        return tokens_of(hand.engine, part, "a context of its own")
    ids = said[part.turn]
    whole = hand.read(ids)
    first, last = (_count(hand, ids, whole[:at]) for at in (part.start, part.stop))
    if part.stop >= len(whole):
        last = len(ids)
    if first is None or last is None:  # it begins or ends inside of a token
        return tokens_of(hand.engine, whole[part.start : part.stop], "a context of its own")
    return ids[first:last]


def _count(hand: Recorder, ids: Array, text: str) -> int | None:
    """How many of the first tokens spell a text; None where it ends inside of one."""
    low, high = 0, len(ids)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if len(hand.read(ids[:middle])) < len(text) else (low, middle)
    return low if hand.read(ids[:low]) == text else None


def descend(tree: Tree, start: Node, ids: Array, may: Callable[[Node], bool] = lambda _: True) -> tuple[Node, int]:
    """From the end of a node down along a run of tokens, through nodes one may enter: where it leaves the tree, which
    is cut there, and how many tokens that is."""
    here, at = start, 0
    while at < len(ids):
        best, most = None, 0
        for child in tree.children(here):
            count = shared(child.actions, ids[at:])
            if count > most and may(child):
                best, most = child, count
        if best is None:
            break
        at += most
        here = tree.cut(best, most)
        if here is not best:
            break
    return here, at


def shared(one: Array, other: Array) -> int:
    """With how many equal tokens two runs begin."""
    count = min(len(one), len(other))
    differs = np.flatnonzero(one[:count] != other[:count])
    return int(differs[0]) if len(differs) else count


def _joined(runs: Sequence[Array]) -> Array:
    return np.concatenate(runs) if runs else np.zeros(0, np.int32)
