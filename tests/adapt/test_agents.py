"""Agents inside TRL: the rows of the native task, training with a program, contexts of their own, chat templates."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rolltree.engine.local import LocalEngine
from rolltree.gateway.agents.task import AgentTask
from rolltree.generate.aside import ASIDE
from rolltree.generate.independent import Independent
from rolltree.integrations.data import distinct_items
from rolltree.task.nano.calculator import Calculator
from tests.adapt.small import batch_of, items_of, trainer_of
from tests.adapt.test_trl import FLAT
from tests.gateway import agents

pytest.importorskip("trl", reason="TRL is not installed: pip install 'rolltree[trl]'")
PROGRAM = Path(__file__).parents[2] / "examples" / "agents" / "calculator_agent.py"


class Played(AgentTask):
    """Under the native task's name, on which the streams of randomness depend."""

    def spoken_by(self, tokenizer):
        made = super().spoken_by(tokenizer)
        made.name = self.inner.name
        return made


def played(agent):
    return Played(agent, task=Calculator(level=1, fail_rate=0.0))


def rows_of(task, tmp_path, recipe="arpo"):
    trainer = trainer_of(recipe, task, tmp_path)
    rows = batch_of(trainer)
    made = trainer.rollout_func([row["prompt"] for row in rows], trainer)
    return {name: value for name, value in made.items() if name != "rolltree_numbers"}


@pytest.mark.papers("arpo")
def test_a_tree_recipe_over_an_agent_gives_trl_the_rows_of_the_native_task(tmp_path):
    """ARPO forks at calls, so here agents are replayed inside the trainer."""
    told = []

    async def calculator(item):
        told.append(item["id"])
        return await agents.calculator(item)

    native, agent = (rows_of(t, tmp_path) for t in (Calculator(level=1, fail_rate=0.0), played(calculator)))
    for one, other in zip(native.pop("logprobs"), agent.pop("logprobs"), strict=True):
        assert one == pytest.approx(other, abs=1e-5)  # their last bits depend on what was sampled beside them
    assert native == agent
    assert any(len(set(row)) > 1 for row in agent["rolltree_advantage"]), "credit differs along some path"
    assert set(told) <= {item.id for item in items_of(Calculator(level=1))}, "an agent hears the item's own name"


def test_the_data_of_an_agent_are_the_items_it_plays_and_start_none():
    def never(item):
        raise AssertionError

    task = played(never)
    assert distinct_items(task, 8) == distinct_items(task.inner, 8)


def test_trl_trains_a_program_that_knows_nothing_of_it(tmp_path):
    trainer = trainer_of("grpo", played(f"{sys.executable} {PROGRAM}"), tmp_path, per_device_train_batch_size=4)
    spoken = []
    trainer.rollout_func.watch = lambda step, forest: spoken.extend((step, leaf) for _, leaf in forest.leaves())
    before = [p.detach().clone() for p in trainer.model.parameters()]
    trainer.train()
    assert {step for step, _ in spoken} == {0, 1}
    assert all(leaf.status == "done" and "reward" in leaf.scores for _, leaf in spoken)
    assert any(not (a == b).all() for a, b in zip(before, trainer.model.parameters(), strict=True))


def test_contexts_of_their_own_are_rows_with_prompts_of_their_own(tmp_path):
    task, trees = played(agents.brief), []
    trainer = trainer_of(FLAT, task, tmp_path, max_completion_length=24)
    trainer.rollout_func.watch = lambda _, forest: trees.extend(forest)
    out = trainer.rollout_func([row["prompt"] for row in batch_of(trainer)], trainer)
    ends = [leaf for tree in trees for leaf in tree.leaves() if leaf.notes.get(ASIDE) and "reward" in leaf.scores]
    assert ends
    assert len({tuple(ids) for ids in out["prompt_ids"]}) > len(trees)
    numbers = out["rolltree_numbers"]
    judged = (sum("reward" in leaf.scores for leaf in tree.leaves()) for tree in trees)
    assert numbers["surplus_leaves"] == sum(max(0, count - 4) for count in judged)


def test_an_agent_speaks_the_trainers_chat_template_by_itself(tmp_path):
    heard = []

    async def calculator(item):
        heard.append(item["prompt"])
        return await agents.calculator(item)

    task = played(calculator)
    trainer = trainer_of(FLAT, task, tmp_path, chat=True, max_completion_length=12)
    trainer.processing_class.chat_template = "{% for m in messages %}({{ m['content'] }}){% endfor %}"
    out = trainer.rollout_func([row["prompt"] for row in batch_of(trainer)], trainer)
    assert set(heard) <= {item.prompt for item in items_of(task.inner)}, "the agent is given plain text"
    for ids in out["prompt_ids"]:
        text = trainer.processing_class.decode(ids).replace(" ", "")
        assert (text.count("("), text[0]) == (1, "(")


def test_the_asynchronous_worker_plays_agents():
    pytest.importorskip("trl.experimental.async_grpo.async_grpo_trainer", reason="this TRL has no asynchronous GRPO")
    from rolltree.integrations.trl import TreeWorker

    task = played(agents.calculator)
    worker = TreeWorker(Independent(4), task, items_of(task), LocalEngine("nano"), prompts=2)
    try:
        worker.start()
        told = worker.metrics_queue.get(timeout=300)
    finally:
        worker.stop()
    assert told["rolltree/leaves"] == 8
    assert told["rolltree/failed_leaves"] == 0
