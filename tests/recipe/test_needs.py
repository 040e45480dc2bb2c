"""What a recipe needs is set or told before the first token, and a run says at its end whether the recipe acted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rolltree
from rolltree.cli import main
from rolltree.compare.arms import arms
from rolltree.compare.compare import coming_back
from rolltree.doctor import examine, open_run
from rolltree.recipe.acted import Acted, acted, acted_in, acted_on, by_prompt
from rolltree.recipe.compose import compose
from rolltree.recipe.recipe import Card, Counter
from rolltree.recipe.registry import list_recipes, load_recipe
from rolltree.task.registry import load_task
from rolltree.training.config import TrainConfig
from rolltree.training.needs import provided
from rolltree.tree import Tree

SMALL = {
    "steps": 3, "prompts": 4, "max_tokens": 16, "eval_every": 0, "checkpoint_every": 0, "forests_every": 0,
}  # fmt: skip
REVISITS = ("v05", "prompt_gdro", "rollout_gdro", "seele", "dart", "dots")


def asked(name: str, task: str = "countdown", **knobs: Any) -> tuple[TrainConfig, list[str]]:
    before = knobs.pop("before", None)
    recipe = load_recipe(name)
    return provided(recipe.card, compose(recipe), load_task(task), TrainConfig(**knobs), "nano", before)


@pytest.mark.parametrize("name", REVISITS)
def test_prompts_come_back_by_default_where_a_recipe_learns_about_prompts(name: str) -> None:
    config, said = asked(name, task="grid" if name == "dart" else "countdown")
    assert config.items == 256
    assert len(said) == 1
    assert said[0].startswith("--items 256 was set: ")
    short, _ = asked(name, steps=12)
    assert short.items == 48, "a short run takes fewer, so that they come back in it"


def test_what_the_run_says_of_items_stands() -> None:
    config, said = asked("v05", items=64)
    assert (config.items, said) == (64, [])
    config, said = asked("v05", items=4000)
    assert config.items == 4000
    assert "give --items 256" in said[0]


def test_a_resumed_run_keeps_what_was_set() -> None:
    config, said = asked("v05", steps=500, before={"items": 48, "scheduler": ""})
    assert (config.items, said) == (48, [])
    config, _ = asked("areal", before={"items": None, "scheduler": "areal"})
    assert config.scheduler == "areal"
    config, _ = asked("areal", before={"items": None, "scheduler": ""})
    assert not config.scheduler, "a run of before there were needs goes on as it began"


def test_areal_runs_under_its_schedule_unless_the_run_says_otherwise() -> None:
    config, said = asked("areal")
    assert config.scheduler == "areal"
    assert said[0].startswith("--scheduler areal was set: ")
    assert asked("areal", staleness=8) == (TrainConfig(staleness=8), [])
    lockstep, said = asked("areal", scheduler="sync")
    assert lockstep.scheduler == "sync"
    assert "give --scheduler areal or --staleness 4" in said[0]


@pytest.mark.parametrize("name", ["tis", "icepop", "minpro", "m2po", "vcpo"])
def test_a_correction_in_lock_step_is_told_what_it_lacks(name: str) -> None:
    config, said = asked(name)
    assert config == TrainConfig()
    assert "give --scheduler areal or --staleness 4" in said[0]
    assert asked(name, staleness=4)[1] == []
    assert asked(name, engine_precision="int8")[1] == []


@pytest.mark.parametrize(("name", "task", "words"), [
    ("hiper", "calculator", "reads the part 'switches'"),
    ("sage_skills", "calculator", "reads the part 'uses'"),
    ("sage_skills", "arithmetic", "needs dialogues of 2 turns or more"),
    ("a2fm", "tagged:calculator", "was never taught them"),
])  # fmt: skip
def test_what_no_option_sets_is_told_with_the_way_to_it(name: str, task: str, words: str) -> None:
    _, said = asked(name, task)
    assert any(words in line and "; " in line for line in said)


def test_needs_that_are_met_are_not_told() -> None:
    assert asked("sage_skills", "chained:calculator")[1] == []
    assert asked("brpo")[1] == []
    assert asked("grpo")[1] == []


def test_brpo_asks_a_judge_that_is_not_the_verifier() -> None:
    assert list(compose(load_recipe("brpo")).peers) == ["judge"]
    recipe = load_recipe("brpo", judge="measured")
    _, said = provided(recipe.card, compose(recipe), load_task("countdown"), TrainConfig())
    assert "give --judge likelihood" in said[0]


def test_rebuttals_are_held_against_templates_by_default() -> None:
    assert "diversity" in {part.name for part in compose(load_recipe("rebuttal_agent")).shapers[0].rewards.parts}  # pyright: ignore


def test_fapo_counts_what_it_penalises() -> None:
    counter = load_recipe("fapo").card.counter
    assert counter is not None
    assert counter.metric == "reward/part/flawed"


def test_all_arms_of_a_comparison_see_the_same_prompts_again() -> None:
    made, said = coming_back(arms(("grpo", "v05")))
    assert [dict(arm.knobs) for arm in made] == [{"train.items": 256}] * 2
    assert said.startswith("train.items=256 was set for all: v05 ")
    given = arms(("grpo", "v05"), ("train.items=32",))
    assert coming_back(given) == (given, "")
    plain = arms(("grpo", "rloo"))
    assert coming_back(plain) == (plain, "")


# -- what a counter says -----------------------------------------------------------------------------------------------


def test_one_line_says_that_it_acted_or_never_did() -> None:
    pruned = Counter("budget/probe_pruned", unit="pruned {} rollouts")
    assert str(acted("arrol", pruned, [0, 400, None, 12])) == "arrol acted in 2 of 4 steps (pruned 412 rollouts)"
    never = str(acted("arrol", replace(pruned, why="too few", option="give --warm 5"), [0, None]))
    assert never == "arrol never acted: too few (budget/probe_pruned 0 in 2 of 2 steps); give --warm 5"
    assert acted("arrol", pruned, []) is None
    near = acted("areal", Counter("policy/clip_high"), [6e-5])
    assert near is not None
    assert near.acted == 0


def test_every_counter_has_words_for_a_run_in_which_it_rests() -> None:
    for card in list_recipes():
        assert card.counter is not None
        said = str(acted(card.name, card.counter, [card.counter.rest]))
        assert said.startswith(f"{card.name} never acted: "), said
        assert "nothing moved" not in said, said


@pytest.mark.parametrize("told", [None, "x", [], {"metric": 3}, {"metric": "a", "rest": "b"}, {"unit": "{0.x}"}])
def test_a_strangers_configuration_says_nothing_and_breaks_nothing(told: Any) -> None:
    lines = [{"kind": "train", "step": 1, "a": "text"}]
    assert isinstance(acted_in({"counter": told}, lines), Acted | None)


def test_rollouts_alone_tell_of_forks_and_roles_but_not_of_training() -> None:
    def card(metric: str) -> Card:
        return Card("x", "", "", 2026, "", (), counter=Counter(metric))

    forked, plain = Tree("a", [1], item="a"), Tree("b", [1], item="b")
    for tree, birth in ((forked, "vine"), (plain, "start")):
        for _ in range(2):
            tree.extend(tree.root, [2], birth=birth, status="done")
    side = Tree("a/judge", [1], item="a")
    side.notes["role"] = "judge"
    side.extend(side.root, [4, 5], status="done")
    trees = by_prompt([forked, plain, side])
    assert str(acted_on(card("rollout/births/vine"), trees)).startswith("x acted in 1 of 2 prompts")
    assert str(acted_on(card("budget/role/judge"), trees)) == "x acted in 1 of 2 prompts (budget/role/judge: 3 tokens)"
    assert acted_on(card("policy/clip_high"), trees) is None


def test_a_run_says_it_in_its_log_its_files_and_to_the_doctor(tmp_path: Path) -> None:
    done = rolltree.train("clip_cov", "nano", "arithmetic", out=tmp_path / "acts", quiet=True, **SMALL)
    assert done.acted is not None
    assert done.acted.acted
    stored = json.loads((tmp_path / "acts" / "acted.json").read_text())
    assert stored["said"] == str(done.acted)
    assert str(done.acted) in (tmp_path / "acts" / "log.txt").read_text()
    still = rolltree.train("tis", "nano", "arithmetic", out=tmp_path / "rests", quiet=True, **SMALL)
    log = (tmp_path / "rests" / "log.txt").read_text()
    assert "tis never acted: " in log
    assert "give --scheduler areal or --staleness 4" in log.splitlines()[0], "told before the first step"
    run = open_run(tmp_path / "rests")
    found = [f for f in examine(run, {"never_acted": {"least": 1}}).findings if f.name == "never_acted"]
    assert [f.message for f in found] == [str(still.acted)]


@pytest.mark.parametrize(("command", "words"), [
    (["rollout", "treepo", "--task", "arithmetic", "--items", "1"], "treepo acted in 1 of 1 prompts"),
    (["solve", "mcts", "--task", "arithmetic", "--items", "1", "--max-tokens", "16"], "mcts acted in 1 of 1 prompts"),
])  # fmt: skip
def test_what_answers_without_training_says_it_too(command: list[str], words: str, capsys: Any) -> None:
    assert main(command) == 0
    said = capsys.readouterr()
    assert words in said.out + said.err
