"""The hand: the one way a strategy acts.

A strategy never talks to an engine, an environment or a verifier; it holds a hand, bound to a tree and to a budget.
Everything the hand does is recorded in the tree as events with their numbers, paid from the budget, and drawn from
streams of randomness that depend on the place in the tree alone. A budget's end is a finish reason, a crash is a failed
node; neither is an exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Unpack

import numpy as np

from rolltree.control.brief import Brief
from rolltree.control.ledger import Budget, Limits
from rolltree.engine.protocol import Scored
from rolltree.engine.texts import actions_of
from rolltree.generate import outside
from rolltree.generate.decode import abandon, finish_request, open_requests
from rolltree.generate.growing import Growing
from rolltree.generate.judge.protocol import Judge, Opinion, Question, ask_judge
from rolltree.generate.random import Stream, lineage, mix, tag_rng
from rolltree.generate.recorder import Recorder
from rolltree.generate.requests import Continuations, PendingRequest, SamplingOptions
from rolltree.generate.roles import ANSWER_TOKENS, About, RoleAnswer, RoleTask, plant_side
from rolltree.generate.setting import HandError
from rolltree.task.protocol import Item, Observation, Verdict, expected
from rolltree.tree import Birth, Node, Role, Tree
from rolltree.tree.node import Array, join_actions

ForkMode = Literal["resample", "forced", "boundary", "restart", "vine"]


class Hand(Recorder):
    """Acts on one tree under one budget. `on` binds it to a tree, `under` to a smaller budget, `as_actor` to a role."""

    def on(self, tree: Tree, limits: Limits | None = None) -> Hand:
        """The hand for one tree. Its tree_budget, bounded by the run's limits per prompt, stays the same in every
        round; `limits` put a smaller budget for this time inside it.
        """
        tree_budget = self.setting.tree_budgets.get(tree.id)
        if tree_budget is None:
            tree_budget = self.budget.child(tree.id, self.setting.per_prompt)
            self.setting.tree_budgets[tree.id] = tree_budget
        share = tree_budget
        if limits is not None or not tree_budget.inside(self.budget):
            share = tree_budget.child("share", limits, also=self.budget)
        return Hand(self.setting, share, tree, actor=self.actor, level=self.level)

    def under(self, budget: Budget | Limits, name: str = "branch") -> Hand:
        """The same hand under a smaller budget: a share from `hand.budget.split(n)`, or limits for a new child."""
        share = budget if isinstance(budget, Budget) else self.budget.child(name, budget)
        return Hand(self.setting, share, self._tree, actor=self.actor, level=self.level)

    def as_actor(self, actor: str, level: int = 0) -> Hand:
        """The same hand writing under another name and level: a planner, a sub-agent, an arm."""
        return Hand(self.setting, self.budget, self._tree, actor=actor, level=level)

    def plant(self, item: Item, *, prompt: Observation | None = None, id: str | None = None) -> Tree:
        """Start another tree for an item, by default from its own prompt (`prompt`: another observation, or actions).

        `id` defaults to the item's, made unique.
        """
        name = item.id if id is None else id
        if id is None:
            count = 1
            while name in self.forest:
                count += 1
                name = f"{item.id}#{count}"
        text = item.prompt if prompt is None else prompt
        ids = actions_of(self.engine, text, f"the prompt of item {item.id!r}")
        self.setting.items[name] = item
        tree = self.forest.plant(name, ids, task=self.task.name, item=item.id)
        tree.notes.update(expected(item))
        return tree

    def adopt(self, tree: Tree, item: Item) -> Tree:
        """Take in a tree from an earlier round or run, to be grown on."""
        if tree.id not in self.forest:
            self.forest.add(tree)
        self.setting.items[tree.id] = item
        return tree

    def rng_at(self, node: Node, *names: str | int) -> Stream:
        """A stream for decisions about a node; it depends on the node's place in the tree, not on when you ask."""
        end = sum(len(n) for n in self.tree.path(node))
        return self.rng.child("at", lineage(self.tree, node), end, *names)

    # -- growing ---------------------------------------------------------------------------------------------------

    async def extend(
        self,
        node: Node,
        *,
        n: int = 1,
        want: Collection[str] = (),
        birth: Birth | None = None,
        why: str = "",
        numbers: Mapping[str, Any] | None = None,
        **draw: Unpack[SamplingOptions],
    ) -> list[Node]:
        """Sample n continuations of a node and wait for them; concurrent calls are one batch in the engine.

        A returned node is `done` where the rollout has ended (eos, the answer of a task without environment, the limit,
        the budget), `open` where it may go on (a segment's end, a turn for the environment), `failed` or `paused`.
        Fewer than n come back, perhaps none, when the budget or the context is at its end; a leaf that cannot grow is
        then closed with that reason.
        """
        pending_requests = open_requests(self, node, Continuations(n, draw, frozenset(want), birth, why, numbers or {}))
        await self._finish(pending_requests)
        return [pending.node for pending in pending_requests]

    def stream(
        self,
        node: Node,
        *,
        want: Collection[str] = (),
        birth: Birth | None = None,
        why: str = "",
        numbers: Mapping[str, Any] | None = None,
        **draw: Unpack[SamplingOptions],
    ) -> Growing:
        """One continuation observed while it is written: `async with` it, iterate its increments, `stop()` it."""
        return Growing(
            self, lambda: open_requests(self, node, Continuations(1, draw, frozenset(want), birth, why, numbers or {}))
        )

    async def resume(
        self, node: Node, *, why: str = "continued", want: Collection[str] = (), **draw: Unpack[SamplingOptions]
    ) -> Node:
        """Open a paused leaf again; a run that was interrupted is written on in the same node, under today's weights.

        A leaf that was paused between two runs is only opened; `turns.proceed` then does what is due there.
        """
        self.tree.resume(node, why, at=self.setting.clock())
        if node.role != "policy" or node.finish != "abort":
            return node
        node.finish = None
        pending_requests = open_requests(self, node, Continuations(1, draw, frozenset(want)), into=True)
        await self._finish(pending_requests)
        return node

    async def fork(
        self,
        node: Node,
        at: int | None = None,
        *,
        mode: ForkMode = "resample",
        tokens: Sequence[int] | Array | str | None = None,
        n: int = 1,
        why: str = "",
        numbers: Mapping[str, Any] | None = None,
        want: Collection[str] = (),
        **draw: Unpack[SamplingOptions],
    ) -> list[Node]:
        """Grow n more branches from inside or the end of a node and wait for them.

        `at` counts the actions of the whole path that stay, prompt included, as `place` does (None = all). The
        continuation's distribution given the prefix is the policy's in every mode but "forced", which first writes
        `tokens` and records their log-prob. "restart" grows from the root, "vine" from an environment's snapshot;
        "boundary" and "resample" differ in name only.
        """
        place = self.tree.root if mode == "restart" else node if at is None else self.place(node, at)
        if mode != "forced":
            return await self.extend(place, n=n, want=want, birth=mode, why=why, numbers=numbers, **draw)
        if tokens is None:
            raise HandError("a forced fork needs the tokens to force; give tokens=, or use mode='resample'")
        forced = await self.force(place, tokens, role="policy", why=why, numbers=numbers)
        if forced is None or forced.status != "open":
            return [] if forced is None else [forced]
        return await self.extend(forced, n=n, want=want, **draw)

    async def force(
        self,
        node: Node,
        tokens: Sequence[int] | Array | str,
        *,
        role: Role = "hint",
        birth: Birth = "forced",
        why: str = "",
        numbers: Mapping[str, Any] | None = None,
    ) -> Node | None:
        """Write given tokens below a node: a hint, an expert's prefix, the alternative token of a fork.

        In role "policy" they are the policy's own actions chosen by a method: they train, are marked `forced`, and
        carry the policy's log-prob (`sampling_logprob` is NaN: they were not sampled). Other roles never train. Role
        "prompt" asks anew: what follows is a rollout of its own, limited and judged by itself, with everything above
        as its context; a text is then the user's, and written in the template that the item is asked in. None = no leaf
        was left in the budget.
        """
        if role == "prompt" and isinstance(tokens, str):
            node, tokens = outside.asked_anew(self, node, tokens)
        ids = actions_of(self.engine, tokens, "a forced text" if isinstance(tokens, str) else "a forced run")
        child = outside.place(self, node, ids, role, birth)
        if child is None:
            return None
        self.event("force", child, why, tokens=len(ids), role=role, **dict(numbers or {}))
        if role == "policy":
            await outside.score_forced(self, child)
        return child

    def cut(self, node: Node, at: int) -> Node:
        """The node that ends after the first `at` actions: a place to fork from. Idempotent per prefix."""
        known = len(self.tree)
        run = lineage(self.tree, node)
        head = self.tree.cut(node, at)
        if len(self.tree) > known:
            tag_rng(head, run)
        return head

    def place(self, leaf: Node, end: int) -> Node:
        """The node on a leaf's path that ends `end` actions from the start of the prompt, cutting a run if need be.

        Positions on a path never shift, so several forks of one leaf can be addressed before any of them is made.
        Where the environment answered with nothing, the place is behind that answer, not before it.
        """
        path, start = self.tree.path(leaf), 0
        for i, node in enumerate(path):
            if (over := start + len(node) - end) >= 0:
                if end < start or (node.parent is None and over):
                    break
                return self.cut(node, end - start) if over else outside.behind_silence(path[i:])
            start += len(node)
        raise HandError(
            f"no place {end} on the path to node {leaf.id} of tree {self.tree.id!r}: give a position from "
            f"{len(self.tree.root)} (the end of the prompt) to {len(self.tree.prefix(leaf))} (the end of the node)"
        )

    def splice(self, leaf: Node, start: Node, replacement: Node | None, *, why: str) -> Node:
        """Copy a leaf's path without the span from `start` up to `replacement`; see `Tree.splice`."""
        path = self.tree.path(leaf)
        spliced = self.tree.splice(leaf, start, replacement, why=why)
        if replacement is not None:
            copied = path[path.index(replacement) :]
            # Named after what they were copied from: which of several splices came first must not matter.
            for copy, source in zip(self.tree.path(spliced)[-len(copied) :], copied, strict=True):
                tag_rng(copy, mix(lineage(self.tree, source), "splice"))
        return spliced

    # -- asking ----------------------------------------------------------------------------------------------------

    async def act(self, node: Node) -> Node | None:
        """The environment's answer to the latest turn, as a new node with the next state.

        Its `step_reward` and parts are recorded; the leaf is `done` when the episode is over, `failed` when the
        environment crashed or hung. None = no environment step was left in the budget.
        """
        return await outside.act(self, node)

    async def restore(self, node: Node) -> tuple[Any, str | None] | None:
        """The environment's state after a node and its key; replayed and checked where it was not kept."""
        return await outside.restore(self, node)

    async def verify(self, node: Node) -> Verdict | None:
        """Score the path to a leaf: `reward` and parts into its scores, the answer into its notes.

        None = the verifier stayed broken; the leaf is then failed.
        """
        return await outside.verify(self, node)

    async def score(
        self, node: Node, *, under: Sequence[int] | Array | None = None, want: Collection[str] = ()
    ) -> Scored | None:
        """Log-probs of a node's actions under the current weights, after its own prefix or `under` another context."""
        before = (
            self.tree.prefix(node)[: -len(node) or None]
            if under is None
            else actions_of(self.engine, under, "a context")
        )
        return await outside.ask_engine(self, node, join_actions([before, node.actions]), len(before), frozenset(want))

    async def judge(
        self,
        judge: Judge,
        questions: Sequence[Question],
        *,
        about: str,
        rng: np.random.Generator | None = None,
    ) -> list[Opinion]:
        """Ask a judge questions: a number for each entry of each, NaN where it abstains (see `judge.protocol`).

        Its calls are paid from the budget. None in place of numbers = it was not paid or stayed broken; never a zero.
        """
        return await ask_judge(self, judge, questions, about, rng)

    # -- asking other roles ----------------------------------------------------------------------------------------

    def side(
        self,
        role: str,
        brief: Brief,
        *,
        about: Sequence[Node | About] = (),
        item: Item | None = None,
        stop: tuple[str, ...] = (),
        max_tokens: int = ANSWER_TOKENS,
        turn: int = 0,
    ) -> Hand:
        """A hand on the side tree where a role is asked this, planted unless it stands; `ask` is the usual way there.

        With `item` the role answers that item from a fresh start, with the brief beside its prompt: what is played from
        the tree's root are rollouts of the task, verified as any are. The same question in another `turn` has another
        tree.
        """
        tree = plant_side(self, role, brief, about, item, RoleTask(role, stop, max_tokens), turn)
        return Hand(self.setting, self.setting.tree_budgets[tree.id], tree, actor=role, level=self.level)

    async def ask(
        self,
        role: str,
        brief: Brief,
        *,
        about: Sequence[Node | About] = (),
        n: int = 1,
        stop: tuple[str, ...] = (),
        max_tokens: int = ANSWER_TOKENS,
        temperature: float | None = None,
    ) -> list[RoleAnswer]:
        """Let a role write n answers to a brief about some nodes, in a side tree of the same forest.

        The role writes with its own engine where the run has one (`roles`, `peers`), else with the run's. What could
        not be paid is missing from the answers; what broke is a failed node of the side tree, and missing too.
        """
        side = self.side(role, brief, about=about, stop=stop, max_tokens=max_tokens)
        draw: SamplingOptions = {} if temperature is None else {"temperature": temperature}
        grown = await side.extend(side.tree.root, n=n, why=f"{role} is asked", **draw)
        for node in grown:
            if node.status == "open":
                side.close(node, node.finish or "stop", "the answer stands")
        return [RoleAnswer(side.tree, node, side.text(node)) for node in grown if node.status == "done"]

    # -- inside ----------------------------------------------------------------------------------------------------

    async def _finish(self, pending_requests: list[PendingRequest]) -> None:
        done = 0
        try:
            for pending in pending_requests:
                await finish_request(self, pending)
                done += 1
        except asyncio.CancelledError:
            for pending in pending_requests[done:]:
                await abandon(self, pending)
            raise
