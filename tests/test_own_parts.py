"""Parts of one's own: from an installed package and from a file, in every verb, and refused in one sentence."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from rolltree.cli import main
from rolltree.compare.arms import arms
from rolltree.compare.sources import recipe_sources, roots
from rolltree.control.registry import CONTROLS
from rolltree.credit.registry import CREDITS
from rolltree.engine.choose import ENGINES
from rolltree.errors import RolltreeError
from rolltree.objective.batch import Batch
from rolltree.objective.registry import OBJECTIVES, load_objective
from rolltree.recipe.registry import RECIPES, load_recipe
from rolltree.recipe.swap import named
from rolltree.registry import Registry
from rolltree.task.registry import TASKS, load_task
from studies.lab.claim import claim_of

ROOT = Path(__file__).resolve().parents[1]
PLUGIN = ROOT / "examples" / "plugin"
FILE = PLUGIN / "rolltree_disagreement.py"
ALL = {
    "recipe": RECIPES,
    "credit": CREDITS,
    "objective": OBJECTIVES,
    "task": TASKS,
    "control": CONTROLS,
    "engine": ENGINES,
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """What installing the example leaves: its module, and metadata with its entry points."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    (site / FILE.name).write_text(FILE.read_text())
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = [
        f"[{group}]\n" + "\n".join(f"{name} = {value}" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n")
    return site


def rolltree(site: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(site))), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-m", "rolltree", *words], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )


def test_an_installed_package_is_compared_like_any_recipe(installed, tmp_path):
    done = rolltree(
        installed, "compare", "grpo", "disagreement", "--task", "arithmetic", "--budget", "600", "--seeds", "1",
        "--set", "train.prompts=2", "--eval-items", "2", "--eval-samples", "2", "--flat", "false", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert [arm["recipe"] for arm in made["arms"]] == ["grpo", "disagreement"]
    assert {trace["label"] for trace in made["traces"]} == {"grpo", "disagreement"}
    listed = rolltree(installed, "recipes", "--json", cwd=tmp_path)
    assert "disagreement" in [card["name"] for card in json.loads(listed.stdout)]


def test_a_file_works_in_every_verb(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = f"{FILE}:disagreement"
    assert main(["recipes", recipe, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["knobs"]["boost"] == 1.0
    assert main(["rollout", recipe, "--task", "arithmetic", "--items", "1", "--json", "--jsonl", "n.jsonl"]) == 0
    assert json.loads(capsys.readouterr().out)["trees"] == 1
    words = "--task arithmetic --steps 1 --prompts 2 --eval-items 2 --eval-samples 2 --doctor 0 --json"
    assert main(["train", recipe, "--boost", "2.0", *words.split()]) == 0
    assert (tmp_path / "runs" / "disagreement-arithmetic-0").is_dir()
    swaps = ["--use-credit", f"{FILE}:Unsure(boost=0.5)", "--control", f"{FILE}:short_first"]
    assert main(["train", "grpo", *swaps, *words.split(), "--out", "swapped"]) == 0
    with pytest.raises(SystemExit):
        main(["train", recipe, "--help"])
    assert "Samples of a prompt whose first ones disagree." in " ".join(capsys.readouterr().out.split())
    assert main(["evidence", recipe]) == 2
    assert "names no evidence" in capsys.readouterr().err


def test_every_kind_of_part_can_stand_in_a_file(tmp_path):
    own = tmp_path / "own.py"
    own.write_text(
        "from dataclasses import dataclass\n"
        "from rolltree.objective.clipped import Clipped\n"
        "from rolltree.task.nano.arithmetic import Arithmetic\n"
        "def tight(width: float = 0.01):\n    return Clipped(width, width)\n"
        "@dataclass(frozen=True)\nclass Sums(Arithmetic):\n    pass\n"
        "def engine(model, *, version, **_):\n    return (model, version)\n"
    )
    assert load_objective(f"{own}:tight", width=0.02).clip_low == 0.02
    assert load_task(f"{own}:Sums", level=2).level == 2
    assert load_task(f"{own}:Sums?level=3").level == 3
    assert ENGINES.find(f"{own}:engine")("nano", version=7, sampling=None, lockstep=False) == ("nano", 7)
    assert named(f"{own}:tight(width=0.5)") == (f"{own}:tight", {"width": 0.5})
    assert arms(["grpo", f"{own}:mine"], [f"{own}:mine:group=4", "kl=0.1"])[1].knobs == (("group", 4), ("kl", 0.1))


@pytest.mark.parametrize("kind", ALL)
def test_what_is_unknown_is_said_in_the_same_words_everywhere(kind, tmp_path):
    registry: Registry = ALL[kind]
    near = registry.names()[0]
    with pytest.raises(RolltreeError, match=rf"^unknown {kind} '{near}x': did you mean '{near}'\?"):
        registry.find(f"{near}x")
    with pytest.raises(RolltreeError, match="there is no file"):
        registry.find(f"{tmp_path}/none.py:x")
    (tmp_path / "broken.py").write_text("import no_such_package_anywhere\n")
    with pytest.raises(RolltreeError, match=r"broken.py cannot be imported: No module named"):
        registry.find(f"{tmp_path}/broken.py:x")
    (tmp_path / "empty.py").write_text("number = 3\n")
    with pytest.raises(RolltreeError, match=rf"unknown {kind} of .*empty.py 'x'"):
        registry.find(f"{tmp_path}/empty.py:x")
    with pytest.raises(RolltreeError, match=rf"is no {kind}, but int"):
        registry.find(f"{tmp_path}/empty.py:number")


def test_a_package_whose_part_is_broken_or_takes_a_known_name_is_named(installed, tmp_path):
    (info,) = installed.glob("*.dist-info")
    for point, said in (
        ("grpo = rolltree_disagreement:Disagreement", "names a recipe 'grpo', which Rolltree has too"),
        (
            "gone = rolltree_disagreement:Gone",
            "the recipe 'gone' of the package rolltree-disagreement cannot be loaded",
        ),
    ):
        site = tmp_path / point.split()[0]
        copy = site / info.name
        copy.mkdir(parents=True)
        (site / FILE.name).write_text(FILE.read_text())
        (copy / "METADATA").write_text((info / "METADATA").read_text())
        (copy / "entry_points.txt").write_text(f"[rolltree.recipes]\n{point}\n")
        done = rolltree(site, "recipes", point.split()[0], cwd=tmp_path)
        assert done.returncode == 2
        assert said in done.stderr


def test_the_code_of_an_own_part_decides_what_a_run_is_found_by(tmp_path):
    recipe = load_recipe(f"{FILE}:disagreement")
    mine = {one.name for one in roots((recipe, recipe.build())) if one.module.startswith("rolltree_file_")}
    assert mine == {"Disagreement", "MoreWhereTheyDisagree", "ShortFirst", "Unsure"}
    assert mine <= recipe_sources(recipe, recipe.build()).keys()
    with pytest.raises(RolltreeError, match="names no evidence"):
        claim_of(f"{FILE}:disagreement")


def test_an_objective_is_found_without_a_line_in_the_registry():
    source = (ROOT / "rolltree" / "objective" / "registry.py").read_text()
    assert {"gspo", "clipped", "context_corrected"} <= set(OBJECTIVES.names())
    assert "gspo" not in source


def test_a_correction_of_ones_own_is_named_by_its_file(tmp_path: Path) -> None:
    own = tmp_path / "halved.py"
    own.write_text(
        "from dataclasses import dataclass, replace\n\n\n@dataclass(frozen=True)\nclass Halved:\n    level = 'token'\n"
        "    needs = frozenset()\n\n    def __call__(self, batch):\n"
        "        return replace(batch, gain=batch.gain / 2, loss=batch.loss / 2), {}\n\n\nNONE = 3\n"
    )
    made = load_objective("clipped", correction=[f"{own}:Halved", "tis"])
    plain = load_objective("clipped", correction="tis")
    batch = {"logp": torch.zeros(2), "old": torch.zeros(2), "gain": torch.ones(2), "loss": torch.zeros(2)}
    one = Batch(**batch, weight=torch.ones(2), sampled=torch.zeros(2))
    assert float(made(one)[0]) == float(plain(one)[0]) / 2 != 0
    with pytest.raises(RolltreeError, match="is no correction"):
        load_objective("clipped", correction=f"{own}:NONE")
    with pytest.raises(RolltreeError, match="did you mean 'tis'"):
        load_objective("clipped", correction="tiss")
