"""Tree-Planner: whole plans are sampled once, merged, and the policy chooses only where they part (arXiv 2310.08582).

A role writes n plans from one prompt. What does not read as actions is dropped; the rest is a trie
(`generate/search/trie.py`), walked in the real environment: an only child is done without asking, children of a fork
are chosen by their likelihood where the path stands, and after an action that fails the walk goes back to the nearest
place with another way, in the environment's state of then.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rolltree.control.brief import brief
from rolltree.generate.hand import Hand
from rolltree.generate.search.trie import Action, plan_trie, walk
from rolltree.tree import Node, Tree


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
