"""A run that was killed goes on as if nothing had happened; a checkpoint that is not whole is refused."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import rolltree
from rolltree.errors import RolltreeError
from rolltree.metrics.log import read_metrics
from rolltree.recipe.gspo import Gspo
from rolltree.training.checkpoint import checkpoints
from rolltree.training.config import TrainError
from rolltree.training.start import Result
from tests.train.toy import KNOBS, RUNS, Early, timeless, tiny_policy


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def run(out: Path, **more: object) -> Result:
    return rolltree.train("grpo", tiny_policy(), Early(), out=out, **{**KNOBS, **more})


@pytest.mark.parametrize("name", list(RUNS))
def test_killed_in_the_middle_of_a_step_and_resumed(name: str, tmp_path: Path) -> None:
    recipe, task, more = RUNS[name]
    knobs = {**KNOBS, **more}
    whole = rolltree.train(recipe(), tiny_policy(), task, out=tmp_path / "whole", **knobs)
    out = tmp_path / "killed"
    done = subprocess.run([sys.executable, "-m", "tests.train.toy", str(out), name], capture_output=True, check=False)
    assert done.returncode == -9, done.stderr.decode()
    assert read_metrics(out / "metrics.jsonl")[-1]["step"] == 4
    again = rolltree.train(recipe(), tiny_policy(), task, out=out, resume=True, **knobs)
    assert timeless(again.metrics) == timeless(whole.metrics)
    for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    turns = [line.get("budget/env_steps", 0) for line in whole.metrics if line["kind"] == "train"]
    assert (sum(turns) > 0) == (task.max_turns > 0)


def test_resuming_with_a_reference_policy_and_adapters(tmp_path: Path) -> None:
    from rolltree.recipe.grpo import Grpo
    from rolltree.training.config import LoraKnobs

    knobs = {**KNOBS, "lora": LoraKnobs(rank=2), "eval_every": 0}
    recipe = Grpo(kl=0.05)
    whole = rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "whole", **knobs)
    rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "parts", **{**knobs, "steps": 4})
    again = rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "parts", resume=True, **knobs)
    assert timeless(again.metrics) == timeless(whole.metrics)
    assert whole.last("train")["policy/kl_reference"] > 0


def test_a_checkpoint_is_a_hugging_face_model(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = run(tmp_path / "run", steps=2)
    place = checkpoints(out.path / "checkpoints")[-1].path
    model = AutoModelForCausalLM.from_pretrained(place)
    for a, b in zip(out.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert AutoTokenizer.from_pretrained(place).encode("abc") == tiny_policy().codec.encode("abc")


@pytest.mark.parametrize("harm", ["cut", "missing", "unsealed"])
def test_a_damaged_checkpoint_is_refused_and_replaced_only_when_told(tmp_path: Path, harm: str) -> None:
    whole = run(tmp_path / "whole")
    run(tmp_path / "run", steps=5)
    newest = checkpoints(tmp_path / "run" / "checkpoints")[-1].path
    assert newest.name == "step-000005"
    if harm == "cut":
        file = newest / "model.safetensors"
        file.write_bytes(file.read_bytes()[:-100])
    elif harm == "missing":
        (newest / "training.pt").unlink()
    else:
        (newest / "whole.json").unlink()
    before = (tmp_path / "run" / "metrics.jsonl").read_text()
    with pytest.raises(TrainError, match=r"step-000005 is (damaged|half-written)"):
        run(tmp_path / "run", resume=True)
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == before
    again = run(tmp_path / "run", resume=True, fallback=True)
    assert timeless(again.metrics) == timeless(whole.metrics)


def test_what_follows_a_fallback_is_kept_and_the_damaged_ones_go(tmp_path: Path) -> None:
    run(tmp_path / "run", steps=6, keep_checkpoints=1, checkpoint_every=2)
    folder = tmp_path / "run" / "checkpoints"
    run(tmp_path / "other", steps=2, keep_checkpoints=1, checkpoint_every=2)
    (tmp_path / "other" / "checkpoints" / "step-000002").rename(folder / "step-000002")
    (folder / "step-000006" / "training.pt").unlink()
    run(tmp_path / "run", steps=4, resume=True, fallback=True, keep_checkpoints=1, checkpoint_every=2)
    assert [c.step for c in checkpoints(folder)] == [4]
    assert run(tmp_path / "run", steps=5, resume=True).last("train")["step"] == 5


@pytest.mark.papers("latr")
def test_knobs_that_are_functions_are_the_same_in_another_process() -> None:
    told = "import json; from rolltree.recipe.registry import load_recipe; from rolltree.training.run import plain; "
    told += "print(json.dumps(load_recipe('latr').build(), default=plain, sort_keys=True))"
    command = [sys.executable, "-c", told]
    here, there = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2))
    assert "similarity" in here
    assert here == there


def test_other_knobs_cannot_resume(tmp_path: Path) -> None:
    run(tmp_path / "run", steps=2)
    with pytest.raises(TrainError, match=r"train.prompts=4 and cannot be resumed with 5"):
        run(tmp_path / "run", resume=True, prompts=5)
    with pytest.raises(TrainError, match="cannot be resumed"):
        rolltree.train(Gspo(), tiny_policy(), Early(), out=tmp_path / "run", resume=True, **KNOBS)
    other = replace(tiny_policy(), name="somewhere/other")
    with pytest.raises(TrainError, match=r"model .* and cannot be resumed with other"):
        rolltree.train("grpo", other, Early(), out=tmp_path / "run", resume=True, **KNOBS)


def resealed(place: Path, **told: object) -> None:
    """Make a checkpoint whole again after a change to it."""
    seal = json.loads((place / "whole.json").read_text())
    for name in list(seal["files"]):
        file = place / name
        if file.exists():
            digest = hashlib.blake2b(file.read_bytes()).hexdigest()[:32]
            seal["files"][name] = [file.stat().st_size, digest]
        else:
            del seal["files"][name]
    (place / "whole.json").write_text(json.dumps({**seal, **told}))


def lacking(place: Path, *names: str) -> None:
    state = torch.load(place / "training.pt", weights_only=True)
    torch.save({k: v for k, v in state.items() if k not in names}, place / "training.pt")


def without_a_weight(place: Path) -> None:
    state = load_file(place / "model.safetensors")
    state.pop("model.norm.weight")
    save_file(state, place / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("harm", "told", "words"),
    [
        (without_a_weight, {}, "lack 'model.norm.weight'"),
        (lambda p: lacking(p, "control"), {}, "lacks 'control'"),
        (lambda p: lacking(p, "readings"), {}, "lacks 'readings'"),
        (lambda p: lacking(p, "torch_rng"), {}, "lacks 'torch_rng'"),
        (lambda p: (p / "training.pt").write_bytes(b"no pickle"), {}, "of another form"),
        (lambda p: torch.save([1], p / "training.pt"), {}, "of another form"),
        (lambda p: None, {"format": 2}, "has format 2 and this Rolltree reads 1"),
        (lambda p: None, {"format": 0}, "has format 0"),
        (lambda p: None, {"files": []}, "cannot be read"),
        (lambda p: save_file({"x": torch.zeros(1)}, p / "more.safetensors"), {}, "more.safetensors, which was not"),
    ],
    ids=["weight", "control", "readings", "rng", "bytes", "list", "newer", "older", "seal", "more"],
)
def test_a_checkpoint_that_lacks_something_is_refused_by_name(
    tmp_path: Path, finished: Path, harm: Callable[[Path], object], told: dict[str, object], words: str
) -> None:
    shutil.copytree(finished, tmp_path / "run")
    place = checkpoints(tmp_path / "run" / "checkpoints")[-1].path
    harm(place)
    resealed(place, **told)
    with pytest.raises(RolltreeError, match=words):
        run(tmp_path / "run", resume=True, steps=3, eval_every=0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("finished") / "run", steps=2, eval_every=0).path


def test_checkpoints_that_are_gone_are_not_a_reason_to_begin_again(tmp_path: Path) -> None:
    out = run(tmp_path / "run", steps=3).path
    shutil.rmtree(out / "checkpoints")
    before = (out / "metrics.jsonl").read_text()
    for log in ("kept", "gone"):
        if log == "gone":  # then the steps tell: one was done behind the first checkpoint
            (out / "log.txt").unlink()
        with pytest.raises(TrainError, match=r"has 3 steps and their checkpoints are gone"):
            run(out, resume=True)
        assert (out / "metrics.jsonl").read_text() == before
    whole = run(tmp_path / "whole")
    assert timeless(run(out, resume=True, fallback=True).metrics) == timeless(whole.metrics)


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    def stop(live: object) -> None:
        if getattr(live, "kind", "") == "grown" and getattr(live, "step", 0) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", listen=stop)
    whole = run(tmp_path / "whole")
    assert timeless(run(tmp_path / "run", resume=True).metrics) == timeless(whole.metrics)


def test_a_used_or_foreign_folder_is_refused(tmp_path: Path) -> None:
    out = run(tmp_path / "run", steps=1).path
    with pytest.raises(TrainError, match="already holds a run"):
        run(out)
    with pytest.raises(TrainError, match="holds no run to resume"):
        run(tmp_path / "nothing", resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with pytest.raises(TrainError, match="not empty"):
        run(tmp_path / "other")
    assert (tmp_path / "other" / "thesis.txt").read_text() == "precious"
