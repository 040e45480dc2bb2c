"""Actions of a policy in an environment, proposed before any of them is done.

At a place the policy writes several turns. Those that do the same are one proposal, scored by a judge that sees the
action and not what comes of it. Doing a proposal is an environment step; proposals stand below where it led. Every
environment here can be brought back to a place (copied, or played again and checked), so nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rolltree.control.brief import brief
from rolltree.generate.choose import grades
from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.search.graph import TRIED, Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.steps import finished
from rolltree.generate.turns import lacks_outcome, play, turns
from rolltree.task.protocol import ActionAbout, ActionKind, about_action
from rolltree.tree import Node

# Actions as the nodes of a search: what is known of them before and after they are done, and the way back to them.
#
# A node stands for an action that was proposed, and, once it was done, for the place it led to. Places to which one may
# return at once are checkpoints; from there the actions in between are done again. What cannot be undone is never done
# twice, so no way back leads across it.

KIND, NAME, COUNT, ENDED = "kind", "action", "count", "ended"
"""Keys in a node's notes: what kind of action it is, what names it, how many proposals were merged in it, and whether
the episode was over after it."""
DESTRUCTIVE, CHECKPOINT = "destructive", "checkpoint"
"""Keys in a node's notes, and parts of an environment's reply: whether the action cannot be undone (as seen after it
was done), and whether one may return at once to where it led (where nothing is said one may)."""


def kind_of(node: SearchNode[Any]) -> ActionKind:
    """What kind of action it is, as far as is known: what was seen when it was done goes before what was said of it."""
    said: ActionKind = node.notes.get(KIND, "plain")
    seen: bool | None = node.notes.get(DESTRUCTIVE)
    if seen is None:
        return said
    return "destructive" if seen else "plain" if said == "destructive" else said


def repeats(node: SearchNode[Any]) -> int:
    """How many times in a row the node's action stands at the end of its path, itself included."""
    names = [n.notes.get(NAME) for n in node.path()[1:]][::-1]
    return next((i for i, name in enumerate(names) if name != names[0]), len(names))


def way_back(target: SearchNode[Any], here: SearchNode[Any] | None = None) -> list[SearchNode[Any]] | None:
    """What must be done again before a proposed action can be done, from `here` or the nearest checkpoint above it.

    Empty = it can be done at once; None = no way leads there without doing again what cannot be undone.
    """
    again: list[SearchNode[Any]] = []
    place = target.parent
    while place is not None and place is not here and place.parent is not None:
        if place.notes.get(CHECKPOINT, True):
            break
        if kind_of(place) == "destructive":
            return None
        again.append(place)
        place = place.parent
    return again[::-1]


@dataclass(frozen=True, slots=True)
class ProposalRules:
    """How actions are proposed."""

    ways: int = 4
    """Turns that the policy writes at a place."""
    judge: Judge = field(default_factory=lambda: Confidence("step"))
    """How promising an action is."""
    asks: tuple[str, ...] = ()
    """Further proposers: what each of them reads, with {prompt} and {said}, the path so far."""
    tries: int = 5
    """Times that an impossible action is written anew."""
    merged: Literal["sum", "best"] = "sum"
    """Score of proposals that do the same: all of them together, or the best one's."""


class ProposedActions:
    """Proposes and does actions on a hand's tree; `make` is what a search asks for."""

    def __init__(self, hand: Hand, rules: ProposalRules, ways: Callable[[SearchNode[Node]], int] | None = None) -> None:
        self.hand = hand
        self.rules = rules
        self.ways = ways or (lambda node: rules.ways)
        """How many turns are written below a node of the search."""

    async def make(self, moves: Sequence[Move[Node]]) -> Sequence[Sequence[Made[Node]]] | None:
        """Do a node's action (the root has none) and propose what follows; None = nothing is left to pay with."""
        node = moves[0].node
        out: list[Made[Node]] = []
        place = node.payload
        if node.parent is not None:
            done = await self.do(place)
            if done is None:
                return None
            place = done
            out.append(self.done(place))
        if place.status == "open":
            out += await self.propose(place, self.ways(node))
        return [out]

    async def do(self, node: Node) -> Node | None:
        """The place after an action, verified where the rollout has ended; None where it could not be paid."""
        hand, here = self.hand, node
        if node.status == "open":
            if turns(hand, node) >= hand.task.max_turns:
                hand.close(node, "depth", f"the limit of {hand.task.max_turns} environment steps")
            else:
                after = await hand.act(node)
                if after is None:
                    return node if lacks_outcome(node) and await hand.verify(node) is not None else None
                here = after
        if lacks_outcome(here):
            await hand.verify(here)
        return here

    def done(self, place: Node) -> Made[Node]:
        """The result of the action that led to a place."""
        notes: dict[str, Any] = {
            TRIED: True, ENDED: place.status == "done" and place.finish in ("stop", "eos"),
            CHECKPOINT: place.scores.get(CHECKPOINT, 1.0) > 0,
        }  # fmt: skip
        if DESTRUCTIVE in place.scores:
            notes[DESTRUCTIVE] = place.scores[DESTRUCTIVE] > 0
        closed = place.status != "open"
        return Made(place, place.scores.get("reward"), closed=closed, cost=len(place), here=True, notes=notes)

    async def propose(self, place: Node, ways: int) -> list[Made[Node]]:
        """Proposals at a place, each with its score as prior."""
        known = await self._written(place, ways)
        if not known:
            if lacks_outcome(place):
                await self.hand.verify(place)
            return []
        scores = await grades(self.hand, self.rules.judge, [node for node, _ in known])
        groups: dict[str, list[tuple[float, Node, ActionAbout]]] = {}
        for (node, about), score in zip(known, scores, strict=True):
            groups.setdefault(about.name, []).append((score, node, about))
        out: list[Made[Node]] = []
        for name, group in groups.items():
            best = max(range(len(group)), key=lambda i: group[i][0])
            score, node, about = group[best]
            for _, other, _ in group[:best] + group[best + 1 :]:
                self.hand.prune(other, why="the same action as another", kept=node.id)
            total = sum(s for s, _, _ in group) if self.rules.merged == "sum" else score
            node.scores["node_value"] = total
            notes = {NAME: name, KIND: about.kind, COUNT: len(group)}
            out.append(Made(node, None, total, cost=sum(len(n) for _, n, _ in group), notes=notes))
        return out

    async def _written(self, place: Node, ways: int) -> list[tuple[Node, ActionAbout]]:
        """Possible actions; an impossible one is dropped and written anew."""
        hand, state = self.hand, await self.hand.restore(place)
        if state is None:
            return []
        out: list[tuple[Node, ActionAbout]] = []
        missing = ways
        for number in range(1 + self.rules.tries):
            nodes = await hand.extend(place, n=missing, want=self.rules.judge.want, why="an action is proposed")
            if not number:
                nodes += await self._asked(place)
            missing = 0
            for node in (n for n in nodes if n.status in ("open", "done")):
                about = about_action(hand.task, hand.item, state[0], hand.turn(node))
                if node.status == "done":
                    about = ActionAbout(about.name, "terminating")
                if about.possible:
                    out.append((node, about))
                else:
                    missing += 1
                    hand.prune(node, why="the action is not possible here")
            if not missing:
                break
        return out

    async def _asked(self, place: Node) -> list[Node]:
        """Actions that other proposers write, as the policy's own."""
        hand = self.hand
        out: list[Node] = []
        for ask in self.rules.asks:
            text = ask.format(prompt=hand.item.prompt, said=hand.text(place))
            for answer in await hand.ask("proposer", brief(text), about=[place], stop=tuple(hand.task.stop)):
                stop = next((s for s in hand.task.stop if answer.text.endswith(s)), None)
                node = await hand.force(place, answer.text, role="policy", why="proposed") if stop else None
                if node is not None and node.status == "open":
                    node.finish, node.notes["stopped_by"] = "stop", stop
                    out.append(node)
        return out

    def drop(self, node: SearchNode[Node], why: str) -> None:
        """Give a proposal up."""
        node.closed = True
        if node.payload.status in ("open", "done"):
            self.hand.prune(node.payload, why=why)

    def give_up(self, graph: SearchGraph[Node], why: str) -> None:
        """Drop what nobody did."""
        for node in graph:
            if node.parent is not None and not node.closed and not node.notes.get(TRIED):
                self.drop(node, why)

    async def play_on(self, here: SearchNode[Node]) -> None:
        """Where nothing has ended, go on from where the search stands."""
        if not finished(self.hand.tree) and here.payload.status == "open":
            await play(self.hand, here.payload, want=self.rules.judge.want)
