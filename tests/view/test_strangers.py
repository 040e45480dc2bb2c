"""Run folders by a stranger run nothing when they are looked at; parts of one's own work where they are given again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from rolltree.analysis.lens import open_lens
from rolltree.analysis.source import open_source
from rolltree.cli import main
from rolltree.compare.card import card
from rolltree.errors import RolltreeError
from rolltree.policy.hub import ALLOWED
from rolltree.policy.models import model_folder
from rolltree.recipe.stored import Given, StoredNameError, StoredNames
from rolltree.tree.store import parquet
from rolltree.view.whatif_jobs import WhatIfJobs
from studies.lab.entry import load_entry

OWN = """
from dataclasses import dataclass
from pathlib import Path

from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Parts
from rolltree.task.nano.arithmetic import Arithmetic

Path({mark!r}).touch()


@dataclass(frozen=True)
class Credit:
    needs: frozenset = frozenset()

    def __call__(self, table):
        return load_credit("rloo")(table)


@dataclass(frozen=True)
class Mine:
    group: int = 2
    card = Card("mine", "Mine", "mine", 2026, "nothing", ("credit",))

    def build(self):
        return Parts("mine", Independent(self.group), Credit(), load_objective("clipped"), averaging="sequence")


@dataclass(frozen=True)
class Sums(Arithmetic):
    name: str = "sums"
"""
SMALL = "--steps 1 --prompts 1 --group 2 --forests-every 1 --eval-every 0 --doctor 0 --out run"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a registered recipe on a registered task, and one whose recipe and task are somebody's own."""
    folder = tmp_path_factory.mktemp("strangers")
    (folder / "mine.py").write_text(OWN.format(mark=str(folder / "mark")))
    own = SMALL.replace("run", "own")
    assert main(["train", "grpo", "--task", "arithmetic", *SMALL.replace("run", f"{folder}/run").split()]) == 0
    with pytest.MonkeyPatch.context() as at:
        at.chdir(folder)
        assert main(["train", "mine.py:Mine", "--task", "mine.py:Sums", *own.split()]) == 0
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own with copies of both runs, in which one is."""
    for name in ("run", "own"):
        shutil.copytree(made / name, tmp_path / name)
    (tmp_path / "mine.py").write_text(OWN.format(mark=str(tmp_path / "mark")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def a_leaf(run: Path) -> list[str]:
    tree = next(iter(parquet.load(run / "forests" / "step=1")))
    return ["--tree", tree.id, "--node", str(next(n.id for n in tree if n.role == "policy")), "--n", "1"]


def tell(file: Path, **changes: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


TASKS: list[tuple[str, str]] = [
    ("{own}:Sums", "--task {own}:Sums"), ("agent:touch {mark}?task=arithmetic", "--task 'agent:touch {mark}?task="),
    ("agent:arithmetic", "--task 'agent:COMMAND?task=arithmetic'"), ("trl:{own}:Sums", "--task trl:"),
    ("tagged:agent:touch {mark}?task=arithmetic", "--task 'tagged:agent"),
    ("gym:mine:Sums-v0", "--task gym:mine:Sums-v0"), ("verifiers:mine", "--task verifiers:mine"),
    ("python:items.jsonl", "--task python:items.jsonl"),
    ("items.jsonl?reward={own}:Credit", "--task 'items.jsonl?reward="), ("hf:somebody/else", "--task hf:somebody/else"),
    ("items.jsonl?mcp=touch {mark}", "--task 'items.jsonl?mcp=touch"), ("/etc/items.jsonl", "--task /etc/items.jsonl"),
    ("arithmetic?level=mine:x", "--task 'arithmetic?level=mine:x'"), ("../items.jsonl", "--task ../items.jsonl"),
]  # fmt: skip


@pytest.mark.parametrize(("task", "way"), TASKS)
def test_a_stored_task_is_registered_or_given_again(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, task: str, way: str
):
    monkeypatch.syspath_prepend(str(place))
    (place / "items.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    fill = {"own": place / "mine.py", "mark": place / "mark"}
    name = task.format(**fill)
    tell(place / "run" / "config.json", task=[name, 0])
    said = refused(capsys, "whatif", "run", *a_leaf(place / "run"))
    assert f"run names the task {name!r}" in said
    assert way.format(**fill) in said
    assert not (place / "mark").exists()
    assert not (place / "run" / "whatif").exists()


@pytest.mark.parametrize("change", [
    {"task": ["\0.jsonl", 0]}, {"task": [f"{'x' * 9000}.jsonl", 0]}, {"model": "~nobody/model"},
    {"train": {"seed": "x"}}, {"train": {"temperature": []}},
])  # fmt: skip
def test_settings_that_make_no_sense_are_one_sentence(
    place: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]
):
    tell(place / "run" / "config.json", **change)
    assert len(refused(capsys, "whatif", "run", *a_leaf(place / "run"), "--policy", "0")) < 1500


def test_registered_tasks_and_data_near_by_are_taken_from_stored_files(place: Path):
    (place / "run" / "items.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    names = StoredNames("run", place / "run")
    for name in ("arithmetic", "arithmetic?level=3", "mixed:arithmetic+records", "tagged:calculator", "spoken:grid"):
        assert names.task(name)
    assert names.task("run/items.jsonl").name == "run/items.jsonl"
    assert names.task(f"jsonl:{place}/run/items.jsonl")


@pytest.mark.papers("mssr")
@pytest.mark.parametrize("change", [
    {"parts": {"name": "{own}:Mine"}}, {"recipe": {"use_credit": "{own}:Credit(x=1)"}},
    {"recipe": {"use_credit": "entropy_bonus(base='{own}:Credit')"}}, {"recipe": {"use_answers": "{own}:Credit"}},
    {"parts": {"name": "mssr"}, "recipe": {"bonus": ["{own}:Credit"]}},
])  # fmt: skip
def test_a_stored_recipe_names_no_code(place: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any]):
    tell(place / "run" / "config.json", **json.loads(json.dumps(change).replace("{own}", str(place / "mine.py"))))
    said = refused(capsys, "whatif", "run", *a_leaf(place / "run"))
    assert "stored files cannot name code" in said
    assert "--recipe " in said or "--credit" in said
    assert card(place / "run").parts is None
    assert not (place / "mark").exists()
    assert main(["whatif", "run", *a_leaf(place / "run"), "--credit", "grpo"]) == 0
    assert main(["whatif", "run", "--show", "001", "--credit", "rloo"]) == 0
    assert not (place / "mark").exists()


def test_a_saved_question_names_no_credit_of_its_own(place: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["whatif", "run", *a_leaf(place / "run")]) == 0
    own = f"{place}/mine.py:Credit"
    tell(place / "run" / "whatif" / "001" / "about.json", credit=own)
    capsys.readouterr()
    assert main(["whatif", "run", "--show", "001"]) == 0
    assert f"--credit {own}" in capsys.readouterr().out.replace("\n", "")
    assert not (place / "mark").exists()
    assert main(["whatif", "run", "--show", "001", "--credit", own]) == 0
    assert (place / "mark").exists()
    assert "stored files" not in capsys.readouterr().out


def test_parts_of_ones_own_work_where_they_are_given_again(place: Path, capsys: pytest.CaptureFixture[str]):
    leaf = a_leaf(place / "own")
    said = refused(capsys, "whatif", "own", *leaf, "--task", "mine.py:Sums")
    assert "unknown recipe 'mine'" in said
    assert "--recipe FILE.py:NAME" in said
    given = ["--recipe", "mine.py:Mine", "--task", "mine.py:Sums"]
    capsys.readouterr()
    assert main(["whatif", "own", *leaf, *given, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["under"] == "the credit of mine.py:Mine"
    assert first["judged_new"] == 1
    assert main(["whatif", "own", "--show", "001", "--json", *given[:2]]) == 0
    assert json.loads(capsys.readouterr().out)["branches"] == first["branches"]
    assert main(["whatif", "own", *leaf, "--credit", "mine.py:Credit", "--task", "mine.py:Sums", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["branches"] == first["branches"]
    assert main(["card", "own", "--recipe", "mine.py:Mine", "--json"]) == 0
    assert "Independent" in json.loads(capsys.readouterr().out)["parts"]["strategy"]
    resumed = SMALL.replace("run", "own").replace("--steps 1", "--steps 2")
    assert main(["train", "mine.py:Mine", "--task", "mine.py:Sums", *resumed.split(), "--resume"]) == 0


def test_an_address_of_the_viewer_names_only_registered_credits_and_given_ones(place: Path):
    own = f"{place}/mine.py:Credit"
    source = open_source(place / "run")
    with pytest.raises(StoredNameError, match="--credit"):
        open_lens(source, 1, ["grpo", own])
    assert not (place / "mark").exists()
    given = open_source(place / "run", given=Given(credits=(own,)))
    assert open_lens(given, 1, ["grpo", own]).names == ("grpo", own)
    assert main(["credit", "grpo", own, "run"]) == 0


def test_a_page_starts_no_part_that_was_not_given_to_the_viewer(place: Path, monkeypatch: pytest.MonkeyPatch):
    own = f"{place}/mine.py:Credit"
    jobs, source = WhatIfJobs(), open_source(place / "run")
    tree, node = a_leaf(place / "run")[1:4:2]
    asked = {"step": "1", "tree": tree, "node": node, "n": "1"}
    for option in ("credit", "engine"):
        with pytest.raises(StoredNameError, match=f"--{option}"):
            jobs.start(source, {**asked, option: own})
    assert jobs.last is None
    # A module of the stranger's in the folder that the viewer was started in is not taken for one of Python's.
    (place / "json.py").write_text(f"open({str(place / 'mark')!r}, 'w')")
    given = open_source(place / "own", given=Given(task="mine.py:Sums", recipe="mine.py:Mine"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    tree, node = a_leaf(place / "own")[1:4:2]
    (place / "mine.py").write_text(OWN.format(mark=str(place / "given")))
    job = jobs.start(given, {**asked, "tree": tree, "node": node})
    assert job.process.wait(300) == 0, job.trouble
    assert (place / "given").exists()
    assert not (place / "mark").exists()


def test_a_stored_model_brings_no_code_and_fetches_nothing(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HF_MODULES_CACHE", str(place / "modules"))
    monkeypatch.setenv(ALLOWED, "1")
    model = place / "model"
    shutil.copytree(model_folder("nano"), model)
    told = json.loads((model / "config.json").read_text())
    told |= {"model_type": "strange", "auto_map": {"AutoConfig": "strange.C", "AutoModelForCausalLM": "strange.M"}}
    (model / "config.json").write_text(json.dumps(told))
    (model / "strange.py").write_text(
        "from pathlib import Path\nfrom transformers import LlamaConfig, LlamaForCausalLM\n"
        f"Path({str(place / 'mark')!r}).touch()\n"
        "class C(LlamaConfig):\n    model_type = 'strange'\nclass M(LlamaForCausalLM):\n    config_class = C\n"
    )
    tell(place / "run" / "config.json", model=str(model))
    leaf = a_leaf(place / "run")
    said = refused(capsys, "whatif", "run", *leaf, "--policy", "0")
    assert "brings Python code of its own" in said
    assert "allow it with --trust-remote-code\n" in said
    assert "brings Python code" in refused(capsys, "labels", "run", "--out", "rows.jsonl")
    assert not (place / "mark").exists()
    assert main(["whatif", "run", *leaf, "--policy", "0", "--trust-remote-code"]) == 0
    assert (place / "mark").exists()
    tell(place / "run" / "config.json", model="somebody/else")
    assert "give it again with --policy somebody/else" in refused(capsys, "whatif", "run", *leaf, "--policy", "0")
    assert "give it again with --model somebody/else" in refused(capsys, "labels", "run", "--out", "rows.jsonl")
    adapters = place / "adapters"
    adapters.mkdir()
    (adapters / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/base"}')
    tell(place / "run" / "config.json", model=str(adapters))
    assert "names the model 'somebody/base'" in refused(capsys, "whatif", "run", *leaf, "--policy", "0")


def test_a_stored_entry_of_evidence_is_that_of_its_file(place: Path):
    stored = next(Path(__file__).parents[2].joinpath("evidence").glob("*.json"))
    told = json.loads(stored.read_text())
    (place / "grpo.json").write_text(json.dumps({**told, "name": f"{place}/mine.py:Mine"}))
    with pytest.raises(RolltreeError, match="is an entry of"):
        load_entry("grpo", place)


def opened(address: str, wanted: str) -> str:
    """A page; it is asked for again where a loaded machine sent it before it was drawn whole."""
    shown = ""
    for _ in range(5):
        shown = urlopen(address, timeout=300).read().decode()
        if wanted in shown:
            break
    return shown


def test_no_page_runs_what_a_run_names_and_given_parts_are_shown(place: Path, started: Callable[..., Any]):
    assert main(["whatif", "run", *a_leaf(place / "run")]) == 0
    own = f"{place}/mine.py:Credit"
    tell(place / "run" / "whatif" / "001" / "about.json", credit=own)
    address = started(place / "run").address
    for page in (
        "/whatif?run=run&saved=001",
        f"/whatif?run=run&saved=001&credit={own}",
        f"/lens?run=run&step=1&credits={own}",
    ):
        assert "stored files cannot name code" in opened(f"{address}{page}", "stored files cannot name code")
    assert not (place / "mark").exists()
    address = started(place / "run", "--credit", own).address
    shown = opened(f"{address}/whatif?run=run&saved=001", f"Under {own}")
    assert f"Under {own}" in shown
    assert "stored files cannot name code" not in shown
    assert (place / "mark").exists()
