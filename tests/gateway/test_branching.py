"""Branches of a black box at its calls: published methods as they are, and the best of several answers."""

import itertools
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

from rolltree.control.ledger import Budget, Limits
from rolltree.credit.gigpo import GiGPO
from rolltree.credit.group import GRPO
from rolltree.errors import RolltreeError
from rolltree.gateway.agents.task import AgentTask
from rolltree.generate.choose import PASSED, Chosen
from rolltree.generate.independent import Independent
from rolltree.generate.scorers import FunctionJudge, LookAhead, Sureness, Verified, scorer_of
from rolltree.recipe.compose import compose
from rolltree.recipe.registry import RECIPES, load_recipe
from rolltree.task.items import TaskError
from rolltree.testing.tiny import tiny_engine
from rolltree.tree.table import table
from tests.gateway import agents
from tests.gateway.test_agents import NATIVE, Forks, grown

ECHO = AgentTask(agents.echo, task=NATIVE)
METHODS = {
    "arpo": {"leaves": 6, "first": 2, "base": 1.0, "fill": "none"},
    "aepo": {"leaves": 6},
    "treepo": {"leaves": 8, "segment": 0, "fill": "none"},
    "treeps_rag": {"leaves": 8},
    "portool": {"group": 4},
    "poly_ppo": {"rollouts": 2, "vines": 5},
}
"""Methods that fork behind the environment's answer; VinePPO's vines are those of poly_ppo."""


def forked(tree):
    """Nodes from which the policy went on more than once, the prompt left out."""
    return [n for n in tree if n.parent is not None and sum(c.role == "policy" for c in tree.children(n)) > 1]


@pytest.mark.papers("aepo", "arpo", "poly_ppo", "portool", "treeps_rag")
@pytest.mark.parametrize("name", METHODS)
def test_published_trees_fork_an_agent_at_its_calls(name):
    """Each fork stands behind a call of the agent, and every leaf of a deterministic agent has its outcome."""
    knobs = METHODS[name]
    known = {k: v for k, v in knobs.items() if k in RECIPES.find(name).__dataclass_fields__}
    forest = grown(tiny_engine(), ECHO, compose(load_recipe(name, **known)).strategy, items=2, seed=3)
    forks = [node for tree in forest for node in forked(tree)]
    assert forks
    assert {node.role for node in forks} == {"env"}
    assert all(node.state is not None and node.state_key for node in forks)
    leaves = [leaf for _, leaf in forest.leaves() if leaf.status != "pruned"]
    assert all(leaf.status == "done" and "reward" in leaf.scores for leaf in leaves)


@pytest.mark.parametrize("agent", [agents.moody, AgentTask(agents.echo, task=NATIVE, states="last")])
def test_states_are_named_by_the_request(agent):
    """GiGPO's groups: the agent's own name of its state, or its last message, whatever was said before."""
    task = agent if isinstance(agent, AgentTask) else AgentTask(agent, task=NATIVE)
    forest = grown(tiny_engine(), task, Independent(12), items=3, seed=2)
    histories = {}
    for tree, node in forest.nodes():
        if node.role in ("prompt", "env") and node.children:
            histories.setdefault(node.state_key, set()).add(tuple(tree.prefix(node).tolist()))
    assert max(map(len, histories.values())) > 3
    stepwise = GiGPO()(table(forest))
    assert stepwise.node is not None
    assert np.abs(stepwise.node).max() > 0


def test_a_state_that_is_no_text_is_refused():
    with pytest.raises(TaskError, match="'said' or 'last'"):
        AgentTask(agents.echo, task=NATIVE, states="first")


@pytest.mark.parametrize("scorer", [Sureness(), scorer_of("confidence")])
def test_one_of_several_answers_is_handed_over_at_every_call(scorer):
    forest = grown(tiny_engine(), ECHO, Chosen(Independent(2), scorer, 3), items=3, seed=1)
    calls = 0
    for tree in forest:
        for node in tree:
            answers = [c for c in tree.children(node) if c.role == "policy"]
            if not answers:
                continue
            assert len(answers) == (6 if node.parent is None else 3)
            for i in range(len(answers) // 3):
                among = answers[i :: len(answers) // 3] if node.parent is not None else None
                if among:
                    best = max(one.scores["value"] for one in among)
                    (on,) = [one for one in among if one.status != "pruned"]
                    assert on.scores["value"] == best
                    calls += 1
        passed = [n for n in tree if n.status == "pruned"]
        assert passed
        assert all(n.is_leaf and len(n) and "reward" not in n.scores for n in passed)
        assert sum(e.kind == "prune" and PASSED in e.why for e in tree.events) == len(passed)
    assert calls > 3


def test_sureness_reads_the_recorded_entropy():
    forest = grown(tiny_engine(), ECHO, Chosen(Independent(1), Sureness(), 4), items=1)
    for _, node in forest.nodes():
        if "value" in node.scores:
            assert node.scores["value"] == pytest.approx(-float(node.entropy.mean()))


def test_look_ahead_values_an_answer_by_rollouts_that_stay_with_their_credit():
    forest = grown(tiny_engine(), ECHO, Chosen(Independent(1), LookAhead(2), 2), items=4, seed=4)
    seen = 0
    for tree in forest:
        for node in tree:
            assert node.status != "pruned"
            if "value" not in node.scores:
                continue
            ahead = [leaf.scores["reward"] for leaf in tree.leaves(node)]
            assert 0 <= node.scores["value"] <= 1
            seen += 1
            chosen = any(e.kind == "select" and e.node == node.id for e in tree.events)
            if not chosen:
                assert node.scores["value"] == pytest.approx(sum(ahead) / len(ahead))
        assert all(leaf.status == "done" and "reward" in leaf.scores for leaf in tree.leaves())
        credit = GRPO()(table([tree]))
        assert len(credit.leaf) == len(tree.leaves())
    assert seen >= 8


def test_a_verifier_gives_siblings_an_outcome_and_the_chosen_none_before_its_end():
    forest = grown(tiny_engine(), ECHO, Chosen(Independent(1), Verified(), 3), items=3, seed=4)
    for tree in forest:
        chosen = [tree[e.node] for e in tree.events if e.kind == "select"]
        assert chosen
        for node in chosen:
            assert ("reward" in node.scores) == node.is_leaf
        for leaf in tree.leaves():
            assert leaf.status == "done"
            assert leaf.scores["reward"] in (0.0, 1.0)
        siblings = [leaf for leaf in tree.leaves() if leaf.finish == "depth"]
        assert siblings


def test_a_judge_of_ones_own_is_paid_and_followed(tmp_path):
    (tmp_path / "mine.py").write_text("async def judge(prompt, text):\n    return float(text.count('g'))\n")
    scorer = scorer_of(f"{tmp_path}/mine.py:judge")
    budget = Budget(Limits(judge_calls=1000))
    forest = grown(tiny_engine(), ECHO, Chosen(Independent(1), scorer, 3), items=2, budget=budget)
    assert budget.spent.judge_calls >= 6
    chosen = [(t, t[e.node]) for t in forest for e in t.events if e.kind == "select"]
    for tree, node in chosen:
        assert node.scores["value"] == max(
            c.scores["value"] for c in tree.children(tree[node.parent]) if "value" in c.scores
        )


def test_a_judge_that_is_broken_chooses_nobody_and_fails_what_it_was_to_judge():
    def broken(prompt, text):
        return "good"

    (tree,) = grown(tiny_engine(), ECHO, Chosen(Independent(1), FunctionJudge(broken), 2), items=1)
    assert any("return a finite number" in e.why for e in tree.events)
    assert all(leaf.status == "failed" for leaf in tree.leaves())
    assert not any("reward" in leaf.scores for leaf in tree.leaves())


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("entrpy", "did you mean 'entropy'"),
        ("lookahead(rollouts=0)", "looks nowhere"),
        ("lookahead(rolouts=2)", "did you mean 'rollouts'"),
        ("entropy(answers=1)", "leaves nothing to choose"),
        ("entropy(answers='4')", "no number of answers"),
    ],
)
def test_what_cannot_choose_is_refused_in_one_sentence(told, said):
    with pytest.raises(RolltreeError, match=said):
        compose(load_recipe("grpo", use_answers=told))


def test_any_recipe_takes_the_best_of_several_answers():
    parts = compose(load_recipe("treepo", use_answers="lookahead(rollouts=1, answers=2)", segment=0, leaves=4))
    assert parts.strategy.answers == 2
    forest = grown(tiny_engine(), ECHO, parts.strategy, items=2, seed=1)
    assert any(e.kind == "select" and "the best of 2" in e.why for tree in forest for e in tree.events)


# -- what agents read from outside ------------------------------------------------------------------------------------


def test_what_an_agent_reads_through_outside_is_replayed():
    """The clock, random numbers and tools of an agent in this process: forks read what was read, and then anew."""
    task = AgentTask(agents.timely, task=NATIVE)
    forest = grown(tiny_engine(), task, Forks(), items=6, seed=5)
    leaves = [leaf for _, leaf in forest.leaves()]
    assert len(leaves) - len(forest) > 10
    assert all(leaf.status == "done" for leaf in leaves)
    heard = [bytes(n.actions) for _, n in forest.nodes() if n.role == "env" and len(n)]
    assert len(set(heard)) == len(heard)  # nothing was read twice but by replay


def test_reading_something_else_on_replay_is_refused_with_both():
    flips = itertools.count()

    async def fickle(item):
        messages = [{"role": "user", "content": item["prompt"]}]
        for _ in range(3):
            said = await agents.ask(item, messages, stop=["!"])
            tool = agents.counted if next(flips) % 2 else abs
            item["outside"].call(tool, 1)
            messages += [said, {"role": "user", "content": "h!"}]
        return said["content"]

    forest = grown(tiny_engine(), AgentTask(fickle, task=NATIVE), Forks(), items=1, seed=1)
    said = [e.why for tree in forest for e in tree.events if e.kind == "fail"]
    assert any("on replay the agent reads" in why and "where it read" in why for why in said)


@dataclass
class Tool:
    fails: bool = True

    def __call__(self, x):
        if self.fails:
            raise ValueError("no such row")
        return [x]


def test_a_reading_that_raised_raises_again_and_is_no_longer_the_agents_to_change():
    from rolltree.gateway.agents.outside import Outside

    tool = Tool()
    first = Outside()
    with pytest.raises(ValueError, match="no such row"):
        first.call(tool, 1)
    tool.fails = False
    rows = first.call(tool, 2)
    rows.append("mine")
    again = Outside(first.record)
    with pytest.raises(ValueError, match="no such row"):
        again.call(tool, 1)
    assert again.call(tool, 2) == [2]
    assert again.random.random() == first.random.random()
    assert SimpleNamespace(now=again.now()).now > 0
    assert len(again.record) == len(first.record) + 1
