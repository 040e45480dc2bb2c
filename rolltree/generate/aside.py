"""Contexts of their own: what an environment asks the policy in the middle of a turn of its own.

An agent may start helpers, shorten its history, change it or ask again. Such a call does not go on from the rollout's
last token, so it cannot stand below it. It is answered before the environment answers the turn, in a tree of its own,
from the very ids that earlier turns sampled; `join` then puts these contexts into the rollout's tree.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from rolltree.engine.protocol import EngineError
from rolltree.engine.texts import tokens_of
from rolltree.generate.decode import abandon, finish_request, open_requests
from rolltree.generate.random import MARK, lineage
from rolltree.generate.recorder import Recorder
from rolltree.generate.requests import Continuations
from rolltree.generate.setting import Gone
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


# Contexts of their own in the tree of their rollout, when nobody grows it any more.
#
# Each leaves the tree at its last common token: in the prompt, which is then cut, or in what its own rollout sampled.
# Its last turns get the mean outcome of the rollouts that came of it, so that each sampled token is trained once for
# each context it was sampled in. A context whose rollouts have no outcome has none either, and says so.

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
