"""The groups of one plan as they are built: trees planted as ordered, and gathered by prompt into what credit sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rolltree.control.brief import Brief, Laid
from rolltree.control.history import History, band
from rolltree.control.ledger import Budget
from rolltree.control.order import PLAIN, ControlError, Delivery, Grades, Order, Written
from rolltree.control.probe import Probed
from rolltree.engine.protocol import Engine, token_codec
from rolltree.engine.texts import actions_of
from rolltree.filter.groups import GroupFilter, live_leaves
from rolltree.generate.aside import shared
from rolltree.generate.random import MARK
from rolltree.generate.setting import error_line
from rolltree.generate.spoken import laid_out
from rolltree.task.protocol import Item, Task, expected
from rolltree.task.spoken import Spoken
from rolltree.tree import Node, Tree
from rolltree.tree.node import Array, FloatArray, as_actions, is_solved, join_actions
from rolltree.tree.references import moved as moved_references

# Log-probs of nodes whose context has changed, or that were never read, in the tree where they stand now.


async def score_bare(tree: Tree, heads: list[Node], engine: Engine, budget: Budget) -> None:
    """Give rollouts whose context was left out the log-prob they have without it; the sampling distribution stays in
    `sampling_logprob`."""
    for head in heads:
        for node in tree.walk(head):
            if node.trainable and len(node):
                await score_node(tree, node, engine, budget)
                node.entropy = node.top = None


async def score_node(tree: Tree, node: Node, engine: Engine, budget: Budget) -> None:
    """Write the policy's log-prob of a node's actions in this tree on it; if that breaks, what is below failed."""
    prefix: Array = tree.prefix(node)
    try:
        scored = await engine.score(prefix, len(prefix) - len(node))
    except Exception as error:
        for leaf in tree.leaves(node):
            if not leaf.ended or leaf.status == "done":
                why = f"scoring in the tree's context: {error_line(error)}"
                tree.close(leaf, "failed", "error", why, error=type(error).__name__)
        return
    budget.charge("prefilled", len(prefix))
    node.logp = scored.logp
    if node.forced:
        node.sampling_logprob = np.full(len(node), np.nan, np.float32)
    if node.version is None:
        node.version = np.full(len(node), scored.version, np.int32)


# Several deliveries for one prompt as one tree: the group its credit, filters and shapers see.
#
# A delivery in another context than the bare prompt's keeps that context as hint nodes, one for each slot of its brief;
# beside a prompt in a chat template they stand inside of it, so the two contexts part where the first slot begins.
# A hidden slot is left out instead, and the rollouts carry the log-prob of the bare prompt beside the distribution they
# were sampled from.

IDS = frozenset({"children", "head", "original", "removed"})
"""Numbers of events that are node ids."""


def absorb(into: Tree, grown: Tree, order: Order, laid: Laid) -> list[Node]:
    """Move what was grown for an order below the prompt of `into`; returns the nodes that stand right below it.

    `laid` is the prompt with the slots of its brief that are shown.
    """
    top = _context(into, order, laid) if grown.root.children else into.prompt
    heads = grown.children(grown.root)
    moved = {grown.root.id: top.id}
    for node in list(grown.walk()):
        if node.parent is None:
            continue
        old, above = node.id, moved[node.parent]
        # Names of runs belong to the tree they grew in: a copy's later growth must not repeat the original's.
        node.notes.pop(MARK, None)
        node.id, node.parent = max(into.nodes) + 1, above
        moved[old] = node.id
        into.adopt(node)
    moved_references((into[i] for i in moved.values()), moved)
    into.prompt.status = "done"
    if not into.prompt.children:
        into.prompt.finish = "budget"
    for event in grown.events:
        if event.node is None or event.node in moved:
            at = None if event.node is None else moved[event.node]
            into.events.append(
                replace(event, node=at, numbers={k: _moved(k, v, moved) for k, v in event.numbers.items()})
            )
    if "failed" in grown.notes:
        into.notes["failed"] = grown.notes["failed"]
    return heads


def _context(into: Tree, order: Order, laid: Laid) -> Node:
    """The node that ends an order's context: what it shares with the bare prompt is that prompt's own beginning."""
    known = shared(into.prefix(into.prompt), laid.ids)
    top, at = _beginning(into, known), known
    for slot in order.brief.shown if order.brief is not None else ():
        start, stop = laid.spans[slot.name]
        top = _between(into, top, laid.ids[at:start])
        notes: dict[str, Any] = {"arm": order.arm, "slot": slot.name}
        top = into.extend(
            top, laid.ids[max(start, at) : stop], role="hint", forced=True, trainable=slot.trainable, birth="forced",
            status="done", actor="control", notes=notes | ({"sources": list(slot.sources)} if slot.sources else {}),
        )  # fmt: skip
        into.event("force", top, order.why, arm=order.arm, tokens=len(top), role="hint", slot=slot.name)
        at = max(stop, at)
    return _between(into, top, laid.ids[at:])


def _between(into: Tree, top: Node, ids: Array) -> Node:
    """What a template writes between slots and behind them."""
    if not len(ids):
        return top
    for one in into.children(top):
        if one.role == "prompt" and np.array_equal(one.actions, ids):
            return one
    return into.extend(top, ids, role="prompt", birth="boundary", status="done", actor="task")


def _beginning(into: Tree, known: int) -> Node:
    """The node that ends after the first tokens of the bare prompt; the scores of a group stay at its root."""
    start, first = 0, into.root
    node = first
    for node in into.path(into.prompt):
        if known <= start + len(node):
            break
        start += len(node)
    head = into.cut(node, known - start)
    if into.root is not first:
        into.root.scores, first.scores = first.scores, {}
    return head


def _moved(name: str, value: Any, moved: dict[int, int]) -> Any:
    if name not in IDS:
        return value
    if isinstance(value, list):
        return [moved.get(v, v) for v in value]
    return moved.get(value, value)


MEASURED = "asked for to measure, not to train on"
"""Why such trees are dropped."""
REPLACED = "dropped: replaced by an earlier success"
"""Why a failure leaves its group."""


@dataclass(slots=True)
class GroupBuilder:
    """The groups of one plan as they come in."""

    engine: Engine
    task: Task
    budget: Budget
    filters: Sequence[GroupFilter]
    history: History
    step: int
    groups: dict[int, Tree] = field(default_factory=dict[int, Tree])
    """The tree of each prompt, by its place."""
    bands: dict[str, str] = field(default_factory=dict[str, str])
    """Each prompt's difficulty band by what was known before the step."""
    _ids: set[str] = field(default_factory=set[str])
    _ungraded: dict[int, Delivery] = field(default_factory=dict[int, Delivery])
    """Deliveries whose outcomes the plan has yet to say, by place."""

    def plant(self, order: Order, item: Item, name: str) -> Tree:
        """A bare tree with the prompt as the order asks it; `item` is the order's own (`ordered_item`)."""
        ids = actions_of(self.engine, order.prompt.item.prompt, f"the prompt of item {item.id!r}")
        if order.brief is not None:
            what = f"what is added to the prompt of item {item.id!r}"
            ids = laid_out(order.brief, lambda text: actions_of(self.engine, text, what), _asked(order, ids)).ids
        return Tree(name, ids, task=self.task.name, item=item.id)

    def restored(self, place: int, group: Tree) -> None:
        """A group that had been gathered before a restart."""
        self.groups[place] = group
        self._ids.add(group.id)

    def gather(self, order: Order, tree: Tree, seen: tuple[Probed, ...], number: int) -> tuple[Delivery, list[Node]]:
        """Put what grew for an order of the plan's round `number` into its prompt's group.

        Returns the delivery, and nodes whose log-probs must be read again in the group's tree (`rescore`) before it is
        one.
        """
        prompt = order.prompt
        tree.item = prompt.item.id
        self._name(tree, number)
        delivery = self.delivery(order, tree, seen)
        if not order.judged:
            for leaf in live_leaves(tree):
                leaf.scores.clear()
        for leaf in tree.leaves():
            leaf.scores.update(order.leaf_marks)
            if order.arm != PLAIN:
                leaf.notes["arm"] = order.arm
        if not order.for_training:
            return delivery, []
        group, heads = self.groups.get(prompt.place), list[Node]()
        read = self.engine.codec.encode
        shown = Brief(order.brief.shown if order.brief is not None else ())
        if group is None:
            bare = as_actions(read(prompt.item.prompt))
            # The tree begins with what all contexts of the prompt share, so that none of them is an empty leaf.
            common = bare[: shared(bare, laid_out(shown, read, _asked(order, bare)).ids)]
            group = tree if order.brief is None else Tree(tree.id, common, task=self.task.name, item=prompt.item.id)
            group.notes.update(expected(prompt.item))
            self.groups[prompt.place] = group
        if group is not tree:
            heads = absorb(group, tree, order, laid_out(shown, read, _asked(order, group.prefix(group.prompt))))
        if order.replaces and any(r > 0 for r in delivery.rewards):
            _replace(group, order.replaces)
        group.root.scores.update(order.marks)
        if order.why or order.width is not None or order.brief is not None:
            numbers: dict[str, Any] = {"arm": order.arm, "width": order.width, "delivered": delivery.n, **order.marks}
            group.event("allocate", None, order.why, **numbers)
        brief = order.brief
        return delivery, heads if brief is not None and (brief.hides or brief.trains) else []

    async def rescore(self, order: Order, heads: Sequence[Node]) -> None:
        """Read the log-probs that gathering changed the context of, or that were never read."""
        if not heads or order.brief is None:
            return
        group = self.groups[order.prompt.place]
        if order.brief.hides:
            await score_bare(group, list(heads), self.engine, self.budget)
        for node in group.path(heads[0])[:-1]:
            if node.role == "hint" and node.trainable:
                await score_node(group, node, self.engine, self.budget)

    def judged(self, delivery: Delivery) -> Delivery:
        """The delivery with the filters' word on its prompt's group as it is now."""
        group = self.groups.get(delivery.order.prompt.place)
        kept = delivery.order.for_training and group is not None and all(f(group) is None for f in self.filters)
        return replace(delivery, kept=kept)

    def note(self, round: Sequence[Delivery]) -> None:
        """Remember what was delivered for a round."""
        for delivery in round:
            uid = delivery.order.prompt.uid
            self.bands.setdefault(uid, band(self.history.rate(uid)))
            if not delivery.order.judged:
                self._ungraded[delivery.order.prompt.place] = delivery
        self.history.observe(round, self.step)

    def grade(self, grades: Grades) -> list[Delivery]:
        """Write the outcomes a plan gives, and say the deliveries again with them."""
        out: list[Delivery] = []
        for place, rewards in grades.rewards.items():
            delivery = self._ungraded.pop(place, None)
            if delivery is None or len(delivery.texts) != len(rewards):
                raise ControlError(
                    f"a plan gives {len(rewards)} outcomes to the one in place {place}, where "
                    f"{len(delivery.texts) if delivery else 0} rollouts wait for one; grade what was ordered with "
                    "judged=False once, one outcome for each text"
                )
            if tree := self.groups.get(place):
                for leaf, reward in zip(_ungraded(tree), rewards, strict=True):
                    leaf.scores["reward"] = reward
                    tree.event("verify", leaf, "graded by the control", reward=reward)
            numbers = dict(grades.numbers.get(place, {}))
            out.append(self.judged(replace(delivery, rewards=tuple(rewards), numbers=numbers)))
        self.history.observe([replace(d, decoded=0) for d in out], self.step)
        return out

    def delivery(self, order: Order, tree: Tree, seen: tuple[Probed, ...] = ()) -> Delivery:
        """What came of an order, read off its tree."""
        live = live_leaves(tree)
        rewards = tuple(leaf.scores["reward"] for leaf in live)
        lengths = tuple(_written(tree, leaf) for leaf in live)
        right = [(n, i) for i, (n, leaf) in enumerate(zip(lengths, live, strict=True)) if is_solved(leaf.scores)]
        text = ""
        if right and order.judged:
            made = self.engine.codec.decode(_own(tree, live[min(right)[1]]))
            text = made if isinstance(made, str) else ""  # an answer is handed on as a hint where it is a text
        asked = [leaf for leaf in live if order.texts or not order.judged]
        again = [_written_again(tree, leaf, self.engine) for leaf in asked]
        said = (token_codec(self.engine, "a control of texts").decode(_own(tree, leaf)) for leaf in asked)
        return Delivery(
            order, rewards if order.judged else (), lengths, texts=tuple(said),
            decoded=sum(len(n) for n in tree if n.trainable and not n.forced),
            failed=sum(leaf.status == "failed" for leaf in tree.leaves()), solved_text=text, probes=seen,
            turns=tuple(sum(n.role == "env" for n in tree.path(leaf)) for leaf in live), written=tuple(again),
            logp=tuple(_likely(tree, leaf) for leaf in live) if order.given else (),
        )  # fmt: skip

    def _name(self, tree: Tree, number: int) -> None:
        """Names that are a step's own, so that its trees can be stored together."""
        name = tree.id if number == 0 else f"{tree.id}@{number + 1}"
        tree.id, count = name, 1
        while tree.id in self._ids:
            count += 1
            tree.id = f"{name}+{count}"
        self._ids.add(tree.id)


def _asked(order: Order, ids: Array) -> Array | Spoken:
    """What a brief is laid beside: the messages of a prompt in a chat template, or a plain prompt's tokens."""
    prompt = order.prompt.item.prompt
    return prompt if isinstance(prompt, Spoken) else ids


def _ungraded(tree: Tree) -> list[Node]:
    return [
        leaf for leaf in tree.leaves()
        if leaf.status == "done" and "reward" not in leaf.scores and not leaf.usage.startswith("dropped")
    ]  # fmt: skip


def _replace(group: Tree, count: int) -> None:
    """The oldest failures leave the group for a success that came in."""
    lost = [n for n in live_leaves(group) if n.scores["reward"] <= 0]
    for leaf in lost[:count]:
        leaf.usage = REPLACED


def _own(tree: Tree, leaf: Node) -> Array:
    """Everything after the prompt."""
    return join_actions([n.actions for n in tree.path(leaf) if n.role != "prompt"])


def _written(tree: Tree, leaf: Node) -> int:
    return sum(len(n) for n in tree.path(leaf) if n.trainable)


def _written_again(tree: Tree, leaf: Node, engine: Engine) -> Written | None:
    """What the policy said, turn by turn; None where it ended a rollout without a word."""
    codec = token_codec(engine, "a rollout that may be given again")
    turns: list[list[Node]] = [[]]
    for node in tree.path(leaf):
        if node.role == "env":
            turns.append([])
        elif node.role == "policy":
            turns[-1].append(node)
    texts = tuple(codec.decode(join_actions([n.actions for n in turn])) for turn in turns if turn)
    sampled = [tuple(float(x) for n in turn for x in _drawn(n)) for turn in turns if turn]
    if not texts or not all(texts):
        return None
    return Written(texts, tuple(sampled) if all(np.isfinite(row).all() for row in sampled) else ())


def _likely(tree: Tree, leaf: Node) -> float:
    """Mean log-prob of a path's own actions under the policy that read them."""
    read = [n.logp for n in tree.path(leaf) if n.trainable and n.logp is not None and len(n)]
    return float(np.concatenate(read).mean()) if read else math.nan


def _drawn(node: Node) -> FloatArray:
    return np.full(len(node), np.nan) if node.sampling_logprob is None else node.sampling_logprob
