"""What could be known from the command line is said before the first rollout, and judges that only read are peers."""

import asyncio
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from rolltree.errors import RolltreeError
from rolltree.recipe.check import check, check_rewards
from rolltree.recipe.compose import Steered
from rolltree.recipe.recipe import Peer, RecipeError
from rolltree.recipe.registry import load_recipe
from rolltree.task.nano import NanoTask
from rolltree.task.protocol import measured
from rolltree.task.registry import NANO, load_task
from rolltree.training.config import TrainError
from rolltree.training.peers import check_peers
from rolltree.training.start import train
from tests.recipe.test_recipes import ENGINE

TASKS = (*NANO, "slides", "labelled:arithmetic", "chained:calculator", "spoken:grid", "planned:grid", "tagged:lookup",
         "mixed:arithmetic+countdown")  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_a_task_measures_the_parts_it_says_in_every_verdict(name):
    task = load_task(name)
    assert isinstance(task, NanoTask)
    told = measured(task)

    async def parts(item, text):
        state = task.start(item)[0]
        if task.max_turns and text is None:
            state = (await task.step(item, state, task.act(item, state, Random(0)))).state
        said = text if text is not None else "" if task.max_turns else task.act(item, state, Random(0))
        return (await task.verify(item, state, said)).parts.keys()

    for item in islice(task.items("test"), 3):
        for text in ("", "?", None):
            assert told <= asyncio.run(parts(item, text))


@pytest.mark.papers("a2fm", "e1", "fapo", "reex_sql", "rl_struct", "slideforge")
@pytest.mark.parametrize(
    ("recipe", "task", "control", "said"),
    [
        (
            "fapo",
            "countdown",
            "",
            "reads the part 'steps' of each verdict, and the task 'countdown' measures att",
        ),
        ("slideforge", "countdown", "", "reads the part 'look_png'"),
        ("reex_sql", "grid", "", "reads the part 'entities' of each verdict, and the task 'grid' measures goal"),
        ("rl_struct", "arithmetic", "", "reads the part 'keys'"),
        ("a2fm", "tagged:calculator", "prompt-gdro", "needs 'leaf:tool_mode', which neither .* the control PromptGdro"),
        ("e1", "arithmetic", "prompt-gdro", "needs 'root:effort', which neither .* the control PromptGdro"),
    ],
)
def test_rewards_of_what_nothing_supplies_are_refused_before_the_start(recipe, task, control, said):
    made = load_recipe(recipe)
    parts = Steered(made, control).build() if control else made.build()
    with pytest.raises(RecipeError, match=said):
        check_rewards(parts, ENGINE, load_task(task))


@pytest.mark.papers("fapo", "reex_sql", "slideforge")
def test_a_part_that_a_judge_writes_or_that_nobody_knows_of_is_let_pass():
    class Strange:
        name, max_turns = "strange", 0

    check_rewards(load_recipe("fapo", judge="likelihood").build(), ENGINE, load_task("countdown"))
    check_rewards(load_recipe("fapo").build(), ENGINE, Strange())
    check_rewards(load_recipe("reex_sql", exact=0, entities=0).build(), ENGINE, load_task("grid"))
    with pytest.raises(RecipeError, match="'rules'"):
        check_rewards(load_recipe("slideforge", look_png=0, render=0).build(), ENGINE, load_task("countdown"))


@pytest.mark.papers("fapo")
@pytest.mark.parametrize("knobs", [{}, {"use_answers": "confidence(answers=2)"}])
def test_train_refuses_a_part_before_it_evaluates(tmp_path, knobs):
    with pytest.raises(RecipeError, match="reads the part 'steps'"):
        train(load_recipe("fapo", **knobs), "nano", "countdown", out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.papers("label_tree")
def test_labels_are_looked_for_before_the_first_rollout():
    with pytest.raises(RolltreeError, match="has no labels to choose from"):
        check(load_recipe("label_tree").build(), ENGINE, load_task("countdown"))
    check(load_recipe("label_tree", labels="a|b").build(), ENGINE, load_task("countdown"))
    check(load_recipe("label_tree").build(), ENGINE, load_task("labelled:arithmetic"))


@pytest.mark.papers("self_pretraining", "tablegpt_r1")
@pytest.mark.parametrize(("recipe", "knobs"), [("tablegpt_r1", {}), ("self_pretraining", {"judge": "likelihood"})])
def test_a_judge_that_only_reads_goes_with_one_ratio_per_path(recipe, knobs):
    parts = load_recipe(recipe, **knobs).build()
    assert parts.objective.level == "path"
    check_peers(parts)
    with pytest.raises(TrainError, match="lets other write on the same paths"):
        check_peers(replace(parts, peers={**parts.peers, "other": Peer(trained=False)}))
    with pytest.raises(RecipeError, match="writes on no path"):
        Peer(writes=False)


@pytest.mark.papers("self_pretraining")
def test_self_pretraining_trains_by_its_judge(tmp_path):
    recipe = load_recipe("self_pretraining", judge="likelihood", rollouts=2)
    done = train(recipe, "nano", "arithmetic", out=tmp_path / "run", quiet=True, steps=1, prompts=2, eval_every=0)
    assert done.last("train")["budget/trained"] > 0
