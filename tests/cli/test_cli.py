"""What a person at the command line gets: help that teaches, JSON for machines, one line for bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rolltree import __version__
from rolltree.cli import VERBS, main, overview
from rolltree.recipe.registry import knobs_of, list_recipes
from rolltree.tree.store.jsonl import read
from rolltree.tree.store.parquet import load

NODES = (
    '{"tree":"t0","id":0,"role":"prompt","actions":[1,2]}\n'
    '{"tree":"t0","id":1,"parent":0,"role":"policy","actions":[5,9],"logp":[-0.1,-1.2],"scores":{"reward":1.0}}\n'
    '{"tree":"t0","id":2,"parent":0,"role":"policy","actions":[7],"logp":[-0.5],"scores":{"reward":0.0}}\n'
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROLLTREE_HOME", str(tmp_path / "home"))
    torch.set_num_threads(1)


def test_the_overview_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.strip() == overview().strip()
    assert all(verb in overview() for verb in VERBS)
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main([verb, "--help"])
    except SystemExit as stop:
        code = stop.code
    assert code == 0
    assert f"rolltree {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rekipes", "did you mean 'recipes'"),
        ("recipes dapp", "did you mean 'dapo'"),
        ("tasks cuntdown", "did you mean 'countdown'"),
        ("tasks countdown --level 99", "levels 1-4"),
        ("models get nanoo", "'nano'"),
        ("rollout grop", "did you mean 'grpo'"),
        ("rollout grpo --policy nowhere", "nowhere"),
        ("train", "which recipe?"),
        ("train grpo --group 1", "give at least 2"),
        ("train grpo --lr -1", "lr=-1"),
        ("train gigpoo", "unknown recipe 'gigpoo'"),
        ("compare", "which recipes?"),
        ("compare grpo", "two arms or more"),
        ("credit grpo missing.jsonl", "missing.jsonl"),
        ("credit gigpo nodes.jsonl", "state_key"),
        ("credit grpo broken.jsonl", "broken.jsonl"),
        ("credit grpo empty.jsonl", "empty.jsonl holds no trees"),
        ("credit gigp nodes.jsonl", "did you mean 'gigpo'"),
        ("bench engin", "did you mean 'engine'"),
        ("card nothing-here", "nothing-here"),
        ("train grpo --out nodes.jsonl", "nodes.jsonl cannot be written"),
        ("train grpo --threads 0", "--threads 0"),
        ("train grpo --lr inf", "optim.lr=inf"),
        ("train grpo --temperature nan", "temperature=nan"),
        ("train grpo --max-tokens 0", "max_tokens=0"),
        ("train grpo --decoded -1", "decoded=-1"),
        ("train grpo --seconds 0", "seconds=0"),
        ("train grpo --betas 2 3", "optim.betas=(2.0, 3.0)"),
        ("train grpo --eps -1", "optim.eps=-1.0"),
        ("train grpo --warmup -5", "optim.warmup=-5"),
        ("train grpo --lora -3", "--lora -3"),
        ("train grpo --doctor -1", "--doctor -1"),
        ("tasks jsonl:bytes.jsonl", "bytes.jsonl is not UTF-8 text"),
        ("credit grpo nodes.jsonl --out nodes.jsonl --overwrite", "is the file that is read"),
        ("doctor nodes.jsonl --out ./nodes.jsonl", "is the file that is read"),
        ("tasks countdown --items -1", "--items -1"),
        ("budget run --top -1", "--top -1"),
        ("rollout grpo --items 0", "--items 0"),
        ("rollout grpo --show -1", "--show -1"),
        ("rollout grpo --temperature -1", "--temperature -1"),
        ("rollout grpo --temperature nan", "--temperature=nan"),
        ("rollout grpo --top-p 5", "--top-p 5"),
        ("rollout grpo --jsonl nodes.jsonl", "nodes.jsonl exists"),
        ("rollout grpo --out nodes.jsonl", "nodes.jsonl exists"),
        ("credit grpo nodes.jsonl --out nodes.jsonl/adv.jsonl", "cannot be written (Not a directory)"),
        ("card nodes.jsonl --out nodes.jsonl", "nodes.jsonl cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing_behind(
    words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nodes.jsonl").write_text(NODES)
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "broken.jsonl").write_text(NODES + '{"tree":"t0","id":3,"parent":9,"actions":[1]}\n')
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    before = sorted(p.name for p in tmp_path.rglob("*"))
    assert main(words.split()) == 2
    told = capsys.readouterr().err.strip()
    assert said in told
    assert told.count("\n") == 0
    assert told.startswith("rolltree: ")
    assert sorted(p.name for p in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("library", "task"),
    [
        ("math_verify", "jsonl:items.jsonl"),
        ("reasoning_gym", "reasoning-gym:chain_sum"),
        ("gymnasium", "gym:FrozenLake-v1"),
        ("verifiers", "verifiers:x"),
    ],
)
def test_a_library_that_is_not_installed_is_named(
    library: str, task: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    assert main(["tasks", task]) == 2
    assert "pip install 'rolltree[" in capsys.readouterr().err


def test_an_unknown_option_names_the_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "grpo", "--grup", "4"])
    assert stop.value.code == 2
    assert "--group" in capsys.readouterr().err


def test_credit_prints_what_it_computes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "nodes.jsonl").write_text(NODES)
    assert main(["credit", "dr_grpo", "nodes.jsonl", "--averaging", "token"]) == 0
    good, bad = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert good == {"tree": "t0", "id": 1, "gain": pytest.approx([1 / 6, 1 / 6]), "loss": [0, 0]}
    assert bad == {"tree": "t0", "id": 2, "gain": [0], "loss": pytest.approx([-1 / 6])}
    assert main(["credit", "dr_grpo", "nodes.jsonl", "--out", "adv.jsonl"]) == 0
    assert main(["credit", "dr_grpo", "nodes.jsonl", "--out", "adv.jsonl"]) == 2


def test_rollouts_are_shown_saved_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["rollout", "treepo", "--task", "countdown", "--items", "2", "--leaves", "4", "--seed", "3"]
    assert main([*asked, "--jsonl", "nodes.jsonl", "--out", "forest", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["trees"] == 2
    assert numbers["leaves"] >= 8
    assert main(["credit", "nested", "nodes.jsonl"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 8
    assert main(asked) == 0
    shown = capsys.readouterr().out
    assert "reward" in shown
    assert "fork at node" in shown
    assert main([*asked, "--decoded", "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["decoded"] <= 20


def test_the_seconds_of_rollouts_begin_when_the_engine_stands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from rolltree.cli import rollout
    from rolltree.engine import choose

    now = 0.0
    made = choose.choose_engine

    async def slow(*asked: Any, **more: Any) -> Any:
        nonlocal now
        engine = await made(*asked, **more)
        now += 257.0
        return engine

    monkeypatch.setattr(choose, "choose_engine", slow)
    monkeypatch.setattr(rollout, "time", SimpleNamespace(monotonic=lambda: now))
    assert main(["rollout", "grpo", "--task", "countdown", "--items", "1", "--group", "2", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["seconds"] == 0
    assert numbers["engine_start_seconds"] == 257


def test_no_path_is_longer_than_max_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--task", "countdown", "--items", "2", "--max-tokens", "5", "--json"]
    assert main(["rollout", "grpo", "--group", "3", *asked]) == 0
    assert json.loads(capsys.readouterr().out)["decoded"] <= 2 * 3 * 5
    assert main(["solve", "best_of_n", "--n", "3", *asked]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["leaves_per_item"] == 3
    assert told["decoded"] <= 2 * 3 * 5
    for verb, method in (("rollout", "grpo"), ("solve", "mcts"), ("compare", "grpo")):
        assert main([verb, method, "--max-tokens", "0"]) == 2
        assert "--max-tokens 0" in capsys.readouterr().err


@pytest.mark.parametrize("task", ["grid", "lookup", "sql", "calculator", "spoken:grid", "planned:grid"])
def test_rollouts_of_every_task_with_turns_are_saved_with_the_keys_of_their_states(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["rollout", "grpo", "--task", task, "--items", "2", "--group", "2", "--temperature", "0.5", "--show", "0"]
    assert main([*asked, "--jsonl", "nodes.jsonl", "--out", "forest"]) == 0
    assert main(["credit", "gigpo", "nodes.jsonl", "--out", "credit.jsonl"]) == 0
    for forest in (read(tmp_path / "nodes.jsonl"), load(tmp_path / "forest")):
        nodes = [node for tree in forest for node in tree.walk()]
        answers = [node for node in nodes if node.parent is None or node.role == "env"]
        # The embedded policy does not speak the grammars of spoken: and planned:.
        assert ":" in task or any(node.role == "env" for node in answers)
        assert all(node.state_key for node in answers)
        assert all(node.state is None for node in nodes)


def test_a_run_can_be_started_described_and_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["train", "grpo", "--task", "countdown", "--steps", "1", "--prompts", "2", "--group", "2"]
    asked += ["--eval-items", "2", "--eval-samples", "2", "--out", "run", "--json"]
    assert main(asked) == 0
    assert json.loads(capsys.readouterr().out)["why"]
    assert main(asked) == 2
    assert "run" in capsys.readouterr().err
    assert main(["card", "run", "--json"]) == 0


@pytest.mark.parametrize(
    "words", ["recipes --json", "tasks --json", "models --json", "credit --json", "recipes grpo --json"]
)
def test_listings_speak_json(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("verb", ["train", "rollout"])
@pytest.mark.parametrize("recipe", [card.name for card in list_recipes()])
def test_every_recipe_takes_its_knobs_on_the_command_line(
    verb: str, recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, recipe, "--help"])
    assert stop.value.code == 0
    told = capsys.readouterr().out
    assert all(
        f"--{knob.replace('_', '-')}" in told or f"--no-{knob.replace('_', '-')}" in told for knob in knobs_of(recipe)
    )


@pytest.mark.papers("dars")
def test_any_control_goes_with_any_recipe_and_help_lists_its_knobs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "treepo", "--control", "dars", "--help"])
    told = capsys.readouterr().out
    assert "--control.schedule" in told
    assert "--control.most" in told
    assert "--leaves" in told
    assert "--lr" in told
    assert main(["train", "treepo", "--control", "darss"]) == 2
    assert "did you mean 'dars'" in capsys.readouterr().err


@pytest.mark.parametrize(("asked", "told"), [("", "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_that_wait_leave_the_processor_to_others(asked: str, told: str) -> None:
    program = "from rolltree.cli import main; main(['--version']); import torch"
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"} | {"OMP_DISPLAY_ENV": "TRUE"}
    environment |= {"OMP_WAIT_POLICY": asked} if asked else {}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert f"OMP_WAIT_POLICY = '{told}'" in done.stderr, "what OpenMP itself says it does"
