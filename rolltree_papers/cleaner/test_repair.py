"""Repairs on the failing calculator: what a purified trajectory says, what it keeps on record, and when it gives up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import islice, pairwise

import numpy as np
import pytest

from rolltree.control.ledger import Budget
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.task.nano.calculator import Calculator
from rolltree.task.protocol import Item, Reply
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import Walk, tiny_engine
from rolltree.tree import Forest, Node, Tree
from rolltree_papers.cleaner import Repairing

CODEC = Letters("0123456789+-*=calc bder!#?\n".replace("c", "", 1), eos_id=-1)
Options = Callable[[list[str]], dict[str, float]]


class Stumbling(Walk):
    """A walk on which words that start late in the alphabet fail."""

    async def step(self, item: Item, state: int, text: str) -> Reply:
        if text[:1] > "s":
            return Reply("y", state, state_key=str(state), failed=True)
        return await super().step(item, state, text)


class Taciturn(Stumbling):
    """One that says nothing when all went well."""

    async def step(self, item: Item, state: int, text: str) -> Reply:
        reply = await super().step(item, state, text)
        return reply if reply.failed else replace(reply, text="")


def test_a_repair_leaves_an_empty_answer_before_the_failed_turn_in_place() -> None:
    task = Taciturn()
    spliced = 0
    for tree in asyncio.run(grow(Repairing(4), tiny_engine(), task, islice(task.items("train"), 30))):
        for event in tree.events:
            if event.kind == "splice":
                spliced += 1
                assert [tree[i].role for i in event.numbers["removed"]].count("env") == 1
                assert all(
                    not (above.role == below.role == "policy") for above, below in pairwise(tree.path(event.node))
                )
    assert spliced


@pytest.mark.parametrize(
    "strategy",
    [Repairing(3), Repairing(3, call=r"[a-m!][\s\S]*", alike=0.2, rewind=True), Repairing(4, chance=0.5, retries=1)],
    ids=["whole", "split", "sometimes"],
)
def test_keeps_the_strategy_contract(strategy: Repairing) -> None:
    check_strategy(strategy, [Stumbling()])


def says(options: Options) -> Callable[[tuple[int, ...]], list[float]]:
    """A policy that writes whole lines: the next letter of those that fit what the line says so far."""

    def policy(prefix: tuple[int, ...]) -> list[float]:
        *lines, so_far = CODEC.decode(prefix).split("\n")
        row = np.zeros(CODEC.vocab_size)
        for line, p in options(lines).items():
            if f"{line}\n".startswith(so_far):
                row[CODEC.encode(f"{line}\n"[len(so_far)])[0]] += p
        return list(row / row.sum() if row.sum() else np.full(len(row), 1 / len(row)))

    return policy


def clerk(lines: list[str]) -> dict[str, float]:
    """Garbles half of its first calls, corrects nearly all of them once told, and copies the result."""
    call = lines[0].removeprefix("calc ")
    last = lines[-1]
    if last.startswith("calc"):
        return {call: 0.5, call.replace("+", "!").replace("-", "!").replace("*", "!"): 0.5}
    if last in ("bad", "err"):
        return {call: 0.9, "=0": 0.1}
    return {f"={last}": 1.0}


def grown(strategy: TreeStrategy, options: Options = clerk, fail: float = 0.0, n: int = 12) -> tuple[Forest, Budget]:
    task, budget = Calculator(1, fail), Budget()
    engine = TabularEngine(says(options), CODEC)
    items = islice(task.items("train"), n)
    return asyncio.run(grow(strategy, engine, task, items, seed=4, budget=budget)), budget


def said(tree: Tree, leaf: Node) -> str:
    return CODEC.decode(tree.prefix(leaf)[len(tree.root) :])


def test_a_repaired_trajectory_says_nothing_of_the_error() -> None:
    forest, _ = grown(Repairing(8, errors="bad"))
    repaired = [(t, leaf) for t in forest for leaf in t.leaves() if any(n.birth == "splice" for n in t.path(leaf))]
    assert len(repaired) > 20
    for tree, leaf in repaired:
        call = CODEC.decode(tree.root.actions).removeprefix("calc ")
        assert said(tree, leaf).startswith(call)
        assert "bad" not in said(tree, leaf)
        assert leaf.scores["reward"] == 1.0
    for tree in forest:
        assert sum(leaf.status == "done" for leaf in tree.leaves()) == 8
        for leaf in tree.leaves():
            assert leaf.status == "done" or "repaired" in next(
                e.why for e in tree.events if e.kind == "prune" and e.node in {n.id for n in tree.path(leaf)}
            )


def test_log_probs_are_the_clean_contexts_and_no_correction_applies() -> None:
    forest, _ = grown(Repairing(8), n=3)
    engine = TabularEngine(says(clerk), CODEC)
    seen = 0
    for tree in forest:
        for node in tree:
            if node.birth == "splice":
                seen += 1
                prefix = tree.prefix(node)
                exact = asyncio.run(engine.score(prefix, len(prefix) - len(node))).logp
                assert node.logp == pytest.approx(exact)
                assert node.sampling_logprob is None
        shifts = [e.numbers["shift"] for e in tree.events if "shift" in e.numbers]
        # With the error in sight the operator was certain, without it one of two.
        assert shifts == pytest.approx([np.log(2)] * len(shifts), abs=1e-3)
    assert seen


def reasoner(plan: str) -> Options:
    """Reasons ("#" and something) before it calls; the correction has another reasoning and `plan` as its call."""

    def options(lines: list[str]) -> dict[str, float]:
        call = lines[0].removeprefix("calc ")
        if lines[-1].startswith("calc"):
            return {f"ea#{call[:-1]}!": 1.0}
        if lines[-1] == "bad":
            return {f"dd#{plan or call}": 1.0}
        return {f"={lines[-1]}": 1.0}

    return options


class Reasoned(Calculator):
    """The calculator, blind to what stands before "#"."""

    async def step(self, item: Item, state, text: str) -> Reply:  # type: ignore[no-untyped-def]
        return await super().step(item, state, text.rpartition("#")[2])


@pytest.mark.parametrize(("plan", "kept"), [("", "ea#"), ("9*9", "dd#")])
def test_old_reasoning_stays_only_where_the_calls_are_alike(plan: str, kept: str) -> None:
    task = Reasoned(1, 0.0)
    engine = TabularEngine(says(reasoner(plan)), CODEC)
    items = [item for item in islice(task.items("train"), 60) if "9" not in item.prompt][:6]
    forest = asyncio.run(grow(Repairing(2, call="(?<=#).*"), engine, task, items))
    for tree in forest:
        done = [leaf for leaf in tree.leaves() if leaf.status == "done"]
        assert len(done) == 2
        call = CODEC.decode(tree.root.actions).removeprefix("calc ").strip()
        wanted = kept + (plan or call)
        assert {said(tree, leaf).split("\n")[0] for leaf in done} == {wanted}


def test_a_tool_that_fails_by_itself_is_asked_again_later_and_rewinding_fails_again() -> None:
    """The calculator's failures depend on the number of calls: only a clock that goes on gets past them."""
    right = {
        rewind: np.mean([
            "err" not in said(tree, leaf)
            for tree in grown(Repairing(4, rewind=rewind, retries=3), fail=0.4)[0]
            for leaf in tree.leaves() if leaf.status == "done"
        ])
        for rewind in (False, True)
    }  # fmt: skip
    assert right[False] > right[True] + 0.1


def test_the_first_call_fails_half_as_often_in_what_teaches_and_the_calls_are_counted() -> None:
    plain, spent = grown(Independent(8))
    clean, more = grown(Repairing(8))

    def stumbles(forest: Forest) -> float:
        return float(np.mean([
            "bad" in said(t, leaf) for t in forest for leaf in t.leaves() if leaf.status == "done"
        ]))  # fmt: skip

    assert stumbles(plain) > 0.4
    assert stumbles(clean) < stumbles(plain) / 2
    assert more.spent.env_steps > spent.spent.env_steps * 0.9


def test_a_turn_without_a_call_keeps_the_error() -> None:
    forest, _ = grown(Repairing(8))
    kept = [said(t, leaf) for t in forest for leaf in t.leaves() if leaf.status == "done" and "=0\n" in said(t, leaf)]
    assert kept
    assert all("bad\n=0\n" in text for text in kept)
