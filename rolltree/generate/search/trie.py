"""Plans sampled whole, merged into a trie, and walked in the world (Tree-Planner, arXiv 2310.08582).

A node is an action after the actions above it; what plans share stands once. On the way down nothing is asked where a
node has one valid child. Where an action fails, its node is invalid; where no child of a node is valid, neither is the
node, and the walk goes back to the nearest ancestor that has one, with the world's state of then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode

S = TypeVar("S")
END = "END"
"""The last action of every plan: the plan is over."""
Action = SearchNode[str]
Choose = Callable[[Sequence[Action], S], Awaitable[Action]]
"""Which child to go to, by the policy that reads the state."""
Step = Callable[[S, Action], Awaitable[S | None]]
"""The state after an action; None = it failed, and nothing has changed."""


def plan_trie(plans: Sequence[Sequence[str]]) -> SearchGraph[str]:
    """The trie of some plans; a node's `visits` count the plans through it."""
    trie: SearchGraph[str] = SearchGraph("")
    for plan in plans:
        node = trie.root
        node.visits += 1
        for action in (*plan, END):
            known = next((child for child in node.children if child.payload == action), None)
            node = known or trie.add(Move(node, "plan"), Made(action))
            node.visits += 1
    return trie


def valid(node: Action) -> list[Action]:
    """Children that have not failed."""
    return [child for child in node.children if not child.closed]


@dataclass
class PlanWalk(Generic[S]):
    """What came of walking a trie."""

    reached: bool = False
    """Whether a plan's end was reached."""
    taken: list[str] = field(default_factory=list[str])
    """The actions of that plan, or of the last try."""
    state: S | None = None
    """Of that plan's end, or after the last action that succeeded."""
    choices: list[int] = field(default_factory=list[int])
    """Number of children at each place where the policy was asked."""
    corrections: int = 0
    """Actions that failed."""


async def walk(
    trie: SearchGraph[str], start: S, step: Step[S], choose: Choose[S], *, corrections: int = 10,
    over: Callable[[S], bool] = lambda state: False,
) -> PlanWalk[S]:  # fmt: skip
    """Go down from the root until a plan has ended, no plan is left, or too many actions have failed.

    Where the world itself is `over`, nothing more can be done, whatever a plan goes on with.
    """
    out: PlanWalk[S] = PlanWalk(state=start)
    path: list[tuple[Action, S]] = [(trie.root, start)]
    while path:
        node, state = path[-1]
        children = valid(node)
        if not children:
            # Back to where another way is open; the world's state of then is the one kept beside it.
            node.closed = True
            path.pop()
            continue
        child = children[0]
        if len(children) > 1:
            out.choices.append(len(children))
            child = await choose(children, state)
        out.taken = [*(n.payload for n, _ in path[1:]), child.payload]
        if child.payload == END:
            out.reached, out.state, out.taken = True, state, out.taken[:-1]
            return out
        after = await step(state, child)
        if after is None:
            child.closed = True
            out.corrections += 1
            if out.corrections > corrections:
                return out
            continue
        path.append((child, after))
        out.state = after
        if over(after):
            out.reached = True
            return out
    return out
