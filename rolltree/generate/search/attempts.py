"""Whole answers as the nodes of a search: every node is an attempt, made with earlier ones in sight.

An attempt below another asks again: a prompt node stands below the first answer, and what is written below it is a
rollout of its own, judged and limited by itself, with everything above as its context. What an operator says there is
its text; "" asks nothing and writes at once, which only makes sense at the root.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from string import Formatter

from rolltree.errors import RolltreeError
from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import answer_of
from rolltree.generate.search.graph import Made, Move, SearchNode
from rolltree.tree import Node
from rolltree.tree.references import refer

Asks = Callable[[Hand, Move[Node]], str]
"""The text that asks for what a move is to make; "" = nothing is asked."""
SLOTS = ("prompt", "answer", "score", "path", "siblings", "references")


@dataclass(frozen=True, slots=True)
class OperatorTexts:
    """What each operator says, as texts with slots.

    {prompt} is the item's; {answer} and {score} are of the node the move starts from; {path} are the attempts from the
    first to that node, {siblings} those that were already made from it, {references} those the move refers to: each as
    its answer and score, joined by `between`.
    """

    texts: Mapping[str, str]
    between: str = "; "

    def __post_init__(self) -> None:
        for name, text in self.texts.items():
            unknown = {slot for _, slot, _, _ in Formatter().parse(text) if slot is not None} - set(SLOTS)
            if unknown:
                raise RolltreeError(
                    f"the text of the operator {name!r} has the slot {{{min(unknown)}}}; known: {', '.join(SLOTS)}"
                )

    def __call__(self, hand: Hand, move: Move[Node]) -> str:
        """The operator's text with its slots filled in."""
        text = self.texts.get(move.operator, "")
        if not text:
            return ""
        node = move.node
        return text.format(
            prompt=hand.item.prompt, answer=said(node), score=score_of(node),
            path=self.listed([n for n in node.path() if n.parent is not None]), siblings=self.listed(node.children),
            references=self.listed(move.references),
        )  # fmt: skip

    def listed(self, nodes: Sequence[SearchNode[Node]]) -> str:
        """Answers and scores of attempts."""
        return self.between.join(f"{said(n)} [{score_of(n)}]" for n in nodes)


def said(node: SearchNode[Node]) -> str:
    """An attempt's answer; "" where it has none."""
    return answer_of(node.payload) or ""


def score_of(node: SearchNode[Node]) -> str:
    """An attempt's score as people write it; "none" where nobody scored it."""
    return "none" if node.value is None else f"{node.value:g}"


async def attempt(
    hand: Hand, move: Move[Node], asks: Asks, *, want: frozenset[str] = frozenset(), verify: bool = True
) -> Made[Node] | None:
    """Make and score one attempt with the hand's actor; None where the budget has ended.

    Its value is its reward, None where it failed. It is closed where nothing more can be asked below it.
    """
    place = move.node.payload
    start: Node | None = place
    if text := asks(hand, move):
        if hand.budget.remaining("decoded") < 1 or hand.budget.remaining("prefilled") < 1:
            hand.event("budget", place, "nothing is left for another attempt")
            return None
        start = await hand.force(place, text, role="prompt", birth="boundary", why="asked again")
    grown = [] if start is None else await hand.extend(start, want=want, why=f"an attempt by {hand.actor}")
    if not grown:
        return None
    made = grown[0]
    refer(made, [n.payload for n in move.references])
    if move.operator not in ("", "attempt"):
        made.notes["operator"] = move.operator
    if verify and made.status == "done":
        await hand.verify(made)
    value = made.scores.get("reward") if made.status == "done" else None
    closed = value is None or not fits(hand, SearchNode(-1, move.node, made, value=value), asks)
    return Made(made, value, closed=closed, cost=len(made))


def fits(hand: Hand, node: SearchNode[Node], asks: Asks) -> bool:
    """Whether another attempt has room in the context below one."""
    room = hand.engine.capabilities.max_context - hand.limit
    asked = len(hand.codec.encode(asks(hand, Move(node, "attempt"))))
    return len(hand.tree.prefix(node.payload)) + asked <= room
