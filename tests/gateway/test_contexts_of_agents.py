"""Agents whose calls are no single conversation: each token is in the tree, in the context it was sampled in."""

import asyncio

import numpy as np
import pytest

from rolltree.control.ledger import Budget
from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.group import GRPO
from rolltree.gateway.agents.task import AgentTask
from rolltree.generate.aside import ASIDE
from rolltree.generate.independent import Independent
from rolltree.recipe.registry import load_recipe
from rolltree.task.nano.calculator import Calculator
from rolltree.task.protocol import spoken_by
from rolltree.testing.tiny import tiny_engine
from rolltree.training.pack import micro_batches
from rolltree.training.start import train
from rolltree.tree.store.parquet import load
from rolltree.tree.table import table
from tests.gateway import agents
from tests.gateway.policies import letters
from tests.gateway.test_agents import NATIVE, Forks, grown


def check_conserved(engine, forest, budget):
    """Every sampled token stands once in a tree, behind the context it was sampled in, and has an end or a reason."""
    sampled = [(tree, node) for tree in forest for node in tree if node.trainable]
    assert sum(len(node) for _, node in sampled) == budget.spent.decoded

    async def score():
        for tree, node in sampled:
            if len(node):
                whole = tree.prefix(node)
                scored = await engine.score(whole, len(whole) - len(node))
                assert np.allclose(scored.logp, node.logp, atol=1e-5)

    asyncio.run(score())
    for tree in forest:
        for leaf in tree.leaves():
            assert leaf.status in ("done", "pruned", "failed")
            assert "reward" in leaf.scores or leaf.usage or leaf.status != "done"


def wandered(seed, engine=None, strategy=None, items=2):
    engine, budget = engine or tiny_engine(), Budget()
    task = AgentTask(agents.wanderer(seed), task=NATIVE)
    forest = grown(engine, task, strategy or Independent(2), items=items, seed=seed, budget=budget)
    check_conserved(engine, forest, budget)
    return forest


@pytest.mark.parametrize("block", range(3))
def test_every_sampled_token_of_any_agent_is_in_the_tree(block):
    apart = 0
    for seed in range(block * 5, block * 5 + 5):
        forest = wandered(seed)
        for tree in forest:
            ends = [leaf for leaf in tree.leaves() if leaf.notes.get(ASIDE)]
            apart += len(ends)
            assert not any(leaf.status == "failed" for leaf in tree.leaves())
    assert apart > 5


def test_forks_replay_agents_with_contexts_of_their_own():
    """Also side by side, where calls may come in another order."""
    for agent in (agents.helped, agents.wanderer(11)):
        engine, budget = tiny_engine(), Budget()
        forest = grown(engine, AgentTask(agent, task=NATIVE), Forks(), items=3, seed=2, budget=budget)
        check_conserved(engine, forest, budget)
        own = [leaf for _, leaf in forest.leaves() if not leaf.notes.get(ASIDE)]
        assert all(leaf.status == "done" and "reward" in leaf.scores for leaf in own)


def test_helpers_are_contexts_of_one_tree_with_the_mean_outcome_of_what_came_of_them():
    engine, budget = tiny_engine(), Budget()
    forest = grown(engine, AgentTask(agents.helped, task=NATIVE), Forks(), items=4, seed=7, budget=budget)
    seen = 0
    for tree in forest:
        prompt = tree.prompt
        assert tree.prefix(prompt).tolist() == engine.codec.encode(prompt_of(tree))
        for leaf in tree.leaves():
            if leaf.notes.get(ASIDE) and not leaf.usage:
                seen += 1
                assert 0 <= leaf.scores["reward"] <= 1
                assert sum(n.trainable for n in tree.path(leaf)) == 2  # a helper says two things in one context
    assert seen >= 16
    found = table(forest)
    folded = fold(found, GRPO()(found), leaf_weights(found, "sequence"))
    trained = sum(len(m.gain) for m in micro_batches(found, folded, 512))
    weighed = sum(len(n) for _, n in forest.nodes() if n.trainable)
    assert trained == weighed


def prompt_of(tree):
    number = int(tree.item.removeprefix("echo-"))
    return "ab"[number % 2] + "cdefgh"[number % 6] + "!"


def test_a_history_that_is_cut_short_goes_on_in_the_same_tree():
    """Compaction: the second call leaves out what was said, so its answer stands beside the first, not below it."""
    (tree,) = grown(tiny_engine(), AgentTask(agents.forgetful, task=NATIVE), Independent(1), items=1)
    first, second = (n for n in tree if n.trainable)
    assert tree.path(first)[-2] is tree.prompt
    assert tree[second.parent].role == "prompt"
    assert first.scores.get("reward", 0.0) == second.scores["reward"] or not first.is_leaf
    assert second.notes[ASIDE]


def test_in_a_chat_template_a_helper_shares_the_template_and_nothing_else():
    engine, budget = letters(), Budget()

    async def delegating(item):
        chat = [{"role": "user", "content": item["prompt"]}]
        said = await agents.ask(item, chat)
        helper = await agents.ask(item, [{"role": "system", "content": "help é"}, {"role": "user", "content": "x"}])
        chat += [said, {"role": "user", "content": helper["content"]}]
        return (await agents.ask(item, chat))["content"]

    task = spoken_by(AgentTask(delegating, task=NATIVE), engine.codec)
    forest = grown(engine, task, Independent(2), items=2, budget=budget)
    check_conserved(engine, forest, budget)
    for tree in forest:
        assert len(tree.root) < len(tree.prefix(tree.prompt))
        helpers = [leaf for leaf in tree.leaves() if leaf.notes.get(ASIDE)]
        assert len(helpers) == 2
        for leaf in helpers:
            assert "help é" in engine.codec.decode_exact(tree.prefix(leaf))
            assert leaf.scores["reward"] in {n.scores["reward"] for n in tree.leaves() if not n.notes.get(ASIDE)}


def test_a_helper_of_a_rollout_that_failed_teaches_nothing():
    async def falls(item):
        await agents.ask(item, [{"role": "user", "content": item["prompt"]}], stop=["!"])
        await agents.ask(item, [{"role": "user", "content": "he!"}], stop=["!"])
        raise ZeroDivisionError("on purpose")

    engine, budget = tiny_engine(), Budget()
    (tree,) = grown(engine, AgentTask(falls, task=NATIVE), Independent(1), items=1, budget=budget)
    check_conserved(engine, [tree], budget)
    assert {leaf.status for leaf in tree.leaves()} == {"failed"}
    assert not any("reward" in leaf.scores for leaf in tree.leaves())


@pytest.mark.parametrize("scheduler", ["", "areal"])
def test_training_sees_every_context(tmp_path, scheduler):
    """In lock-step and where rollouts and training overlap: contexts of their own are leaves that are trained."""
    result = train(
        load_recipe("grpo", group=4), "nano", AgentTask(agents.brief, task=Calculator(level=1, fail_rate=0.0)),
        out=tmp_path / "run", steps=1, prompts=3, eval_every=0, seed=0, scheduler=scheduler,
        forests_every=1, quiet=True,
    )  # fmt: skip
    step = result.last("train")
    trees = [tree for file in sorted((tmp_path / "run").rglob("nodes.parquet")) for tree in load(file.parent)]
    sampled = sum(len(n) for tree in trees for n in tree if n.trainable)
    if not scheduler:  # else further rollouts are on their way
        assert sampled == step["budget/decoded"]
        assert step["policy/mismatch_max"] < 1e-4  # what the trainer reads is what was recorded
    apart = [leaf for tree in trees for leaf in tree.leaves() if leaf.notes.get(ASIDE)]
    assert apart
    assert {leaf.usage for leaf in apart} >= {"trained"}


def test_helpers_without_end_meet_the_limit_of_turns():
    async def endless(item):
        await agents.ask(item, [{"role": "user", "content": item["prompt"]}], stop=["!"])
        while True:
            await agents.ask(item, [{"role": "user", "content": "he!"}], stop=["!"])

    engine, budget = tiny_engine(), Budget()
    task = AgentTask(endless, task=NATIVE, max_turns=6)
    (tree,) = grown(engine, task, Independent(1), items=1, budget=budget)
    check_conserved(engine, [tree], budget)
    (own,) = [leaf for leaf in tree.leaves() if not leaf.notes.get(ASIDE)]
    assert own.finish == "depth"
    again = [leaf for leaf in tree.leaves() if leaf.usage == "dropped: asked again"]
    assert len(again) >= 3
