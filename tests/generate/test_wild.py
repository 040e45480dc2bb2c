"""A strategy that uses every lever at random keeps the whole contract: what any method may do, in any order."""

import asyncio

import pytest

from rolltree.control.brief import brief
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.protocol import entries
from rolltree.generate.turns import play
from rolltree.testing.strategy import STRATEGY_CHECKS

LEVERS = (
    "play",
    "segment",
    "resample",
    "forced",
    "restart",
    "stream",
    "prune",
    "hint",
    "splice",
    "graft",
    "score",
    "judge",
    "ask",
)


class Wild:
    """Several waves of random levers; all branches of a wave run at once, and every choice comes from the hand."""

    needs = frozenset({"entropy:full", "top:2", "score"})

    def __init__(self, salt=0):
        self.salt = salt

    async def grow_tree(self, tree, hand):
        await self.wave(hand, [(tree.root, "play"), (tree.root, "segment"), (tree.root, "hint")])
        for wave in range(3):
            live = [n for n in tree if n.status in ("open", "done") and n.parent is not None and n.role != "prompt"]
            live.sort(key=lambda n: hand.rng_at(n, "order").key)
            choices = [(n, LEVERS[hand.rng_at(n, "lever", wave, self.salt).key % len(LEVERS)]) for n in live[:4]]
            await self.wave(hand, choices)

    async def wave(self, hand, choices):
        # Levers that take effect at once come first: a prune that races with growth would depend on who is faster.
        for node, lever in choices:
            self.pull_at_once(hand, node, lever)
        async with asyncio.TaskGroup() as group:
            for node, lever in choices:
                group.create_task(self.pull(hand, node, lever))

    def pull_at_once(self, hand, node, lever):
        path = hand.tree.path(node)
        if lever == "prune":
            hand.prune(node, why="a coin fell", coin=hand.rng_at(node, lever).uniform())
        elif lever == "splice" and len(path) > 2 and node.is_leaf:
            hand.splice(node, path[1], path[2], why="the first run is left out")
        elif lever == "graft" and node.status in ("open", "done"):
            hand.tree.graft(hand.tree.root, hand.tree, node)

    async def pull(self, hand, node, lever):
        tree, dice = hand.tree, hand.rng_at(node, lever)
        if node.status not in ("open", "done"):
            return
        end = len(tree.prefix(node))
        at = end - int(dice.uniform() * len(node)) if node.parent is not None else end
        match lever:
            case "play":
                await play(hand, node)
            case "segment":
                await hand.extend(node, max_tokens=3, n=2, want={"entropy"})
            case "resample" | "restart":
                await hand.fork(node, at, mode=lever, max_tokens=4)
            case "forced":
                await hand.fork(node, at, mode="forced", tokens=[int(dice.key % 25)])
            case "hint":
                hint = await hand.force(node, "xyx")
                if hint is not None:
                    await play(hand, hint)
            case "stream":
                async with hand.stream(node, want={"top:2"}) as growing:
                    async for _ in growing:
                        if growing.node is not None and len(growing.node) >= 2:
                            growing.stop()
            case "score":
                await hand.score(node, under=[1, 2, 3])
            case "judge":
                await hand.judge(Likelihood(), [entries(hand, [node])], about="a branch")
            case "ask":
                for said in await hand.ask("critic", brief("xyx"), about=[node], n=2, max_tokens=4):
                    assert said.tree is not hand.tree


@pytest.mark.parametrize("check", STRATEGY_CHECKS)
def test_wild_growth_keeps_the_contract(check):
    STRATEGY_CHECKS[check](Wild())
