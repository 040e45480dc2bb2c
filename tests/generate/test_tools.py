"""A tool that raises, hangs or returns a megabyte: every strategy of turns goes on with the paths it did not hit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest

from rolltree.control.ledger import RESOURCES, Budget
from rolltree.generate.forkall import ForkAll, like_look_ups
from rolltree.generate.runner import grow, open_hand
from rolltree.generate.setting import Patience
from rolltree.generate.turnforks import TurnForks
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Item, Reply
from rolltree.testing.strategy import leaves_end_with_reasons, same_seed_same_forest
from rolltree.testing.tiny import Walk, tiny_engine

MEGABYTE = 1_000_000
STRATEGIES: dict[str, Callable[[], Any]] = {
    "turn forks": lambda: TurnForks(6, 3),
    "fork all": lambda: ForkAll(like_look_ups, 6, 3, 2),
    "repairing": lambda: load_recipe("cleaner", group=6).build().strategy,
    "vines": lambda: load_recipe("poly_ppo").build().strategy,
    "execution": lambda: load_recipe("reex_sql", group=6).build().strategy,
    "execution, tree": lambda: load_recipe("reex_sql", group=6, decode="tree").build().strategy,
}


@dataclass(frozen=True, slots=True)
class Struck(Walk):
    """Words that begin with one of these letters strike the tool's fault; half of the others' calls just fail."""

    fault: str = ""
    letters: str = "abcdefgh"

    async def step(self, item: Item, state: int, text: str) -> Reply:
        reply = await Walk.step(self, item, state, text)
        if text[:1] not in set(self.letters):
            return Reply(reply.text, reply.state, reply.done, reply.reward, reply.state_key, failed=text[1:2] > "m")
        if self.fault == "raises":
            raise ConnectionResetError("the tool is gone")
        if self.fault == "hangs":
            await asyncio.Event().wait()
        return Reply("x" * MEGABYTE, reply.state, False, 0.0, reply.state_key)


def grown(strategy, task, patience):
    budget = Budget()

    async def go():
        running = grow(strategy, tiny_engine(), task, islice(task.items("train"), 3), budget=budget, patience=patience)
        return await asyncio.wait_for(running, 300)

    forest = asyncio.run(go())
    budget.check()
    assert not any(budget.held(r) for r in RESOURCES)
    assert not any("failed" in tree.notes for tree in forest)
    return forest


@pytest.mark.papers("cleaner", "poly_ppo", "reex_sql")
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("fault", ["raises", "hangs"])
def test_a_call_that_never_answers_is_a_failed_node_and_no_other_path_is_lost(name, fault):
    forest = grown(STRATEGIES[name](), Struck(fault=fault), Patience(step_seconds=0.05, tries=1))
    leaves = [leaf for _, leaf in forest.leaves() if leaf.status != "pruned"]
    failed = [leaf for leaf in leaves if leaf.status == "failed"]
    assert failed
    assert all(leaf.role == "env" and "reward" not in leaf.scores for leaf in failed)
    said = [e.why for tree in forest for e in tree.events if e.kind == "fail"]
    expected = "the tool is gone" if fault == "raises" else "no answer within 0.05 s"
    assert len(said) == len(failed)
    assert all(expected in why for why in said)
    others = [leaf for leaf in leaves if leaf not in failed]
    assert others
    assert all(leaf.status == "done" and "reward" in leaf.scores for leaf in others)


@pytest.mark.papers("cleaner", "poly_ppo", "reex_sql")
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_megabyte_fills_its_own_context_and_ends_its_own_path(name):
    forest = grown(STRATEGIES[name](), Struck(fault="shouts"), Patience(reply_characters=5_000))
    leaves = [(tree, leaf) for tree, leaf in forest.leaves() if leaf.status != "pruned"]
    full = [leaf for tree, leaf in leaves if any(n.notes.get("cut") == MEGABYTE for n in tree.path(leaf))]
    assert full
    assert len(full) < len(leaves)
    assert {leaf.finish for leaf in full} == {"length"}
    assert {len(leaf) for leaf in full} == {5_000}
    assert all(leaf.status == "done" and "reward" in leaf.scores for _, leaf in leaves)


@pytest.mark.papers("cleaner", "poly_ppo", "reex_sql")
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_contract_holds_while_the_tool_is_broken(name):
    for broken in (Struck(fault="raises", letters="abc"), Struck(letters="")):
        leaves_end_with_reasons(STRATEGIES[name](), [broken])
        same_seed_same_forest(STRATEGIES[name](), [broken])


def test_a_reply_that_was_cut_is_replayed_the_same():
    """States lost (a tree read from disk) are found again, and the observation is compared with what was heard."""
    task, patience = Struck(fault="shouts"), Patience(reply_characters=5_000)

    async def go():
        hand = open_hand(tiny_engine(), task, patience=patience)
        tree = hand.plant(next(task.items("train")))
        mine = hand.on(tree)
        word = await mine.force(tree.root, "ab!", role="policy")
        reply = await mine.act(word)
        for node in tree:
            node.state = None
        return reply, await mine.restore(reply)

    reply, restored = asyncio.run(go())
    assert (len(reply), reply.status, restored) == (5_000, "open", (3, "3"))
