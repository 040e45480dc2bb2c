"""Tree-Planner: efficient close-loop task planning (arXiv 2310.08582)."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, TypeVar

import numpy as np

from rolltree.control.brief import brief
from rolltree.credit.registry import load_credit
from rolltree.generate.hand import Hand
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts
from rolltree.tree import Node, Tree

# Plans sampled whole, merged into a trie, and walked in the world (Tree-Planner, arXiv 2310.08582).
#
# A node is an action after the actions above it; what plans share stands once. On the way down nothing is asked where a
# node has one valid child. Where an action fails, its node is invalid; where no child of a node is valid, neither is
# the node, and the walk goes back to the nearest ancestor that has one, with the world's state of then.

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


# Tree-Planner: whole plans are sampled once, merged, and the policy chooses only where they part (arXiv 2310.08582).
#
# A role writes n plans from one prompt. What does not read as actions is dropped; the rest is a trie
# (`generate/search/trie.py`), walked in the real environment: an only child is done without asking, children of a fork
# are chosen by their likelihood where the path stands, and after an action that fails the walk goes back to the nearest
# place with another way, in the environment's state of then.


@dataclass(frozen=True, slots=True)
class PlanTries:
    """Writes `plans` plans, and walks their trie with at most `corrections` failing actions."""

    plans: int = 25
    corrections: int = 10
    ask: str = "{prompt}"
    """What the planner reads."""
    action: str = ""
    """Regular expression of an action in a plan; "" = what ends with one of the task's stop strings."""
    plan_tokens: int = 64
    needs: frozenset[str] = frozenset({"turns", "score"})

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Plan, merge, walk, and let the verifier see where it ended."""
        said = await hand.ask(
            "planner", brief(self.ask.format(prompt=hand.item.prompt)), about=[tree.root], n=self.plans,
            max_tokens=self.plan_tokens,
        )  # fmt: skip
        read = [self.actions(hand, answer.text) for answer in said]
        plans = [plan for plan in read if plan]
        hand.event("note", None, "plans", written=len(said), readable=len(plans))
        if not plans:
            return
        trie = plan_trie(plans)
        world = _World(hand)
        found = await walk(
            trie, tree.root, world.step, world.choose, corrections=self.corrections, over=lambda n: n.status == "done"
        )
        leaf = found.state or tree.root
        world.drop_untaken()
        hand.event("note", leaf, "the walk ended at a plan's end" if found.reached else "no plan was left",
                   asked=len(found.choices), corrections=found.corrections, nodes=len(trie) - 1,
                   actions=sum(map(len, plans)))  # fmt: skip
        if leaf.parent is None:
            return
        if leaf.status == "open":
            hand.close(leaf, "stop", "the plan is over")
        if leaf.status == "done":
            await hand.verify(leaf)
            tree.notes["answer"] = leaf.notes.get("answer")

    def actions(self, hand: Hand, plan: str) -> list[str]:
        """The actions of a plan; none where it does not read as actions."""
        ends = "|".join(re.escape(stop) for stop in hand.task.stop)
        return [found.group() for found in re.finditer(self.action or f"(?s:.*?)(?:{ends})", plan)]


class _World:
    """The environment along the trie: what was done, and the options that stood beside it."""

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self.options: dict[tuple[int, int], Node] = {}

    async def option(self, state: Node, action: Action) -> Node | None:
        """An action below a state as the policy's own; None where no leaf is left for it."""
        key = (state.id, action.id)
        if key not in self.options:
            node = await self.hand.force(state, action.payload, role="policy", why="an action of a plan")
            if node is None:
                return None
            self.options[key] = node
        return self.options[key]

    async def choose(self, children: Sequence[Action], state: Node) -> Action:
        """The likeliest action; ending comes last, as it is no action of the environment."""
        actions = [child for child in children if child.children] or list(children)
        nodes = [await self.option(state, child) if child.children else None for child in actions]
        worth = [-np.inf if n is None or n.logp is None else float(n.logp.mean()) for n in nodes]
        best = max(range(len(actions)), key=lambda i: worth[i])
        self.hand.event("select", state, "the likeliest of a fork's actions", options=[c.payload for c in actions],
                        worth=[round(w, 4) for w in worth])  # fmt: skip
        return actions[best]

    async def step(self, state: Node, action: Action) -> Node | None:
        """Do it; None where it failed."""
        node = await self.option(state, action)
        if node is None or node.status != "open":
            return None
        after = await self.hand.act(node)
        if after is None or after.status not in ("open", "done") or after.notes.get("failed"):
            self.hand.prune(node, why="the action failed")
            return None
        return after

    def drop_untaken(self) -> None:
        """Options that nobody took."""
        for node in self.options.values():
            if node.is_leaf and node.status == "open":
                self.hand.prune(node, why="another action was taken")


@dataclass(frozen=True, slots=True)
class TreePlanner:
    """Whole plans from one prompt, merged in a trie; the policy is asked only where plans part.

    An action that fails is a correction: the walk goes back to the nearest place with another way, in the state of
    then, which is free only where the environment can be copied. A fork's options are compared by the likelihood of
    their text after what the environment has said, instead of by a majority of sampled letters; to end is chosen only
    where nothing else is left, and what an action failed with is not shown to the next choice. Unlike the released code
    it ends where the plan or the environment ends, not where the goal happens to hold. Plans are cheaper than asking at
    every step for long tasks and few plans, and dearer otherwise (`python -m rolltree_papers.tree_planner.study`).
    """

    card: ClassVar[Card] = Card(
        "tree_planner", "Plans sampled once and walked as a tree", "2310.08582", 2023,
        "92.2 % fewer tokens than the best previous method and 40.5 % fewer error corrections on VirtualHome",
        ("generate", "control"), "grpo",
        Evidence("tokens of asking at each step", "tokens of plans and choices, 12 actions, 25 plans",
                 check="rolltree_papers.tree_planner.study:cheaper", seeds=5),
        counter=Counter("budget/role/planner"),
    )  # fmt: skip
    plans: int = 25
    """N: plans that are sampled (25 or 50 in the paper)."""
    corrections: int = 10
    """Most actions that may fail; 0 = none may."""
    ask: str = "{prompt}"
    """What the planner reads; {prompt} is filled in."""
    action: str = ""
    """Regular expression of an action in a plan; "" = what ends with one of the task's stop strings."""
    plan_tokens: int = 64
    """Most tokens of a plan."""

    def build(self) -> Parts:
        """Plans and a walk; a tree has one outcome, so who trains on it compares it with the batch's."""
        check_group("tree_planner", self.plans, least=1)
        strategy = PlanTries(self.plans, self.corrections, self.ask, self.action, self.plan_tokens)
        return replace(search_parts("tree_planner", strategy), credit=load_credit("reinforce_pp"))
