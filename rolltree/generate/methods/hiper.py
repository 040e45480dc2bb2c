"""Turns in segments between subgoals: as the policy says it in its turns, or where the environment has paid for one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.needs import NeedsError
from rolltree.generate.strategy import TreeStrategy
from rolltree.task.grammar import Spans, Spoken
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class SubgoalTurns:
    """Grows as `inner` does and marks each turn: `notes["spans"]`, and score `switch` = 1 where a segment begins; each
    leaf says how many began after the first (`switches`).

    `by="written"` reads spans and switches off the turn, by the task's grammar: a missing switch keeps the subgoal, and
    the first turn always begins a segment (HiPER). With `whole` every token of a turn learns: what stands in the place
    of a torn switch is the decision to keep, and what stands behind the subgoal is the action, also a failed one. That
    is reconstructed: the paper leaves out of the loss what stands in no span, fines it, and stays near a large policy.
    Left out here, torn tags are tokens that nothing pushes down, and the policy drifts into them. `by="paid"` is for
    policies without that grammar: the whole turn is its action, and a segment begins after a step reward.
    """

    inner: TreeStrategy = field(default_factory=Independent)
    by: Literal["written", "paid"] = "written"
    switch: str = "S"
    """What a turn's switch span says where it switches."""
    whole: bool = True
    """Whether tokens in no span of the grammar learn with the span whose place they take."""
    writes: frozenset[str] = frozenset({"turn:switch", "turn-note:spans"})

    @property
    def needs(self) -> frozenset[str]:
        """The inner strategy's, and an environment that answers."""
        return self.inner.needs | {"turns"}

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse tasks whose turns have no spans to read."""
        if self.by == "written" and not (isinstance(task, Spoken) and any(t.level for t in task.grammar.tags)):
            raise NeedsError(
                f"subgoals are read off the turns, but turns of {task.name!r} have no spans for them; choose a task "
                "with a grammar, such as 'spoken:grid', or subgoals that the environment pays for (by='paid')"
            )

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow, then mark."""
        await self.inner.grow_tree(tree, hand)
        count = dict.fromkeys(("turns", "switches", "torn"), 0)
        for node in tree:
            if node.trainable and len(node):
                count["torn"] += self._mark(tree, node, hand)
                count["turns"] += 1
                count["switches"] += int(node.scores["switch"])
        for leaf in tree.leaves():
            begun = sum(n.scores.get("switch", 0.0) for n in tree.path(leaf))
            leaf.scores["switches"] = max(begun - 1.0, 0.0)
        hand.event("note", None, "turns in segments", **count)

    def _mark(self, tree: Tree, node: Node, hand: Hand) -> bool:
        """Mark a turn; whether it lacks a switch or an action."""
        before = None if node.parent is None else tree[node.parent]
        first = before is None or before.parent is None
        torn = False
        if self.by == "paid":
            begins = first or (before is not None and before.scores.get("step_reward", 0.0) > 0)
            node.notes["spans"] = {"action": (0, len(node))}
        else:
            assert isinstance(hand.task, Spoken)
            begins = first or hand.task.grammar.inside(hand.codec.decode(node.actions), "switch") == self.switch
            spans = hand.task.grammar.tokens(hand.codec, node.actions)
            torn = not spans.keys() >= {"switch", "action"}
            node.notes["spans"] = whole_turn(spans, len(node)) if self.whole else spans
        node.scores["switch"] = float(begins)
        return torn


def whole_turn(spans: Spans, length: int) -> Spans:
    """Switch, subgoal and action that make up the whole turn, each from where the one before it ends."""
    acts = spans["action"][0] if "action" in spans else length
    told = {name: spans[name] for name in ("switch", "subgoal") if name in spans and spans[name][0] < acts}
    if "switch" in told and "subgoal" in told and told["subgoal"] < told["switch"]:
        del told["subgoal"]  # said before its switch, where it is none
    first = min((span[0] for span in told.values()), default=acts if "action" in spans else 0)
    chosen = told["switch"][1] if "switch" in told else first
    named = told["subgoal"][1] if "subgoal" in told else chosen
    whole = {"switch": (0, chosen), "subgoal": (chosen, named), "action": (named, length)}
    return {name: (start, stop) for name, (start, stop) in whole.items() if start < stop}
