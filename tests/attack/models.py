"""Bad model folders and bad checkpoints: files cut, gone, swapped, flipped and rewritten.

Promised: a folder is loaded, or refused in one sentence; no weight is made up; a checkpoint that is not what was
written is refused and nothing is lost by the try.
"""

from __future__ import annotations

import functools
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from rolltree.errors import RolltreeError
from rolltree.policy.load import load_model
from tests.attack.frame import Attack, BrokenPromiseError

_ODD = (None, 0, -1, 1, 2.5, "", "x", [], {}, True, 10**9, 10**30, float("nan"), [[[[]]]], "\ud800", {"a": {"b": []}})
_LONGEST = 2000
"""Characters of a sentence that is still one."""


def rewrite(rng: random.Random, file: Path) -> None:
    """One field of a JSON file becomes something else, or goes."""
    try:
        told = json.loads(file.read_text())
    except ValueError:
        return
    if isinstance(told, dict) and told:
        key = rng.choice(sorted(told))
        if rng.random() < 0.3:
            del told[key]
        else:
            told[key] = rng.choice(_ODD)
    file.write_text(json.dumps(told))


def _tensor(rng: random.Random, file: Path) -> None:
    """One tensor goes, comes, or gets another name, shape, kind or numbers."""
    try:
        state = load_file(file)
    except Exception:  # an earlier harm was to this file too
        return
    name = rng.choice(sorted(state))
    tensor = state.pop(name)
    how = rng.randrange(7)
    if how == 1:
        state[name.replace("layers.0", "layers.7")] = tensor
    elif how == 2:
        state[name] = torch.zeros(*tensor.shape, 2)
    elif how == 3:
        state[name] = tensor.to(rng.choice((torch.float16, torch.float64, torch.int32)))
    elif how == 4:
        state[name] = torch.full_like(tensor, float("nan"))
    elif how == 5:
        state |= {name: tensor, "model.layers.9.mlp.up_proj.weight": torch.zeros(3, 3)}
    elif how == 6:
        state = {}
    save_file(state, file, metadata={"format": "pt"})


def _cut(rng: random.Random, file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[: rng.randrange(len(data) + 1)])


def _flip(rng: random.Random, file: Path) -> None:
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 5, 100))):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    file.write_bytes(data)


def _replace(rng: random.Random, file: Path) -> None:
    file.write_bytes(rng.choice((b"", b"{}", b"[]", b"null", b"[" * 100_000, b"\xff\xfe", b"\0" * 4096, b"1" * 5000)))


def _away(rng: random.Random, file: Path) -> None:
    file.unlink()
    if rng.random() < 0.3:
        file.mkdir()


def _harm(rng: random.Random, folder: Path) -> None:
    harm(rng, rng.choice(sorted(p for p in folder.rglob("*") if p.is_file())))


def harm(rng: random.Random, file: Path) -> None:
    """Cut it, flip bytes in it, replace it, take it away; a field or a tensor of it becomes another."""
    kinds: list[Callable[[random.Random, Path], None]] = [_cut, _flip, _replace, _away]
    if file.suffix == ".json":
        kinds += [rewrite] * 4
    if file.suffix == ".safetensors":
        kinds += [_tensor] * 6
    rng.choice(kinds)(rng, file)


def _sentence(error: RolltreeError) -> str:
    text = str(error)
    if "\n" in text or len(text) > _LONGEST:
        raise BrokenPromiseError(f"the answer is no sentence: {text[:300]!r}")
    return "refused"


@functools.cache
def _template() -> Path:
    from tests.train.toy import tiny_policy

    place, policy = Path(tempfile.mkdtemp(prefix="attack-model-")), tiny_policy()
    policy.model.save_pretrained(place)
    policy.codec.tokenizer.save_pretrained(place)
    return place


def _folder(rng: random.Random, place: Path) -> str:
    folder = place / "model"
    shutil.copytree(_template(), folder)
    for _ in range(rng.choice((1, 1, 2))):
        _harm(rng, folder)
    try:
        loaded = load_model(folder)
    except RolltreeError as error:
        return _sentence(error)
    written: dict[str, Any] = load_file(folder / "model.safetensors")
    own = loaded.model.state_dict()
    there = {own[name].data_ptr() for name in written if name in own}
    made_up = [name for name, tensor in own.items() if tensor.data_ptr() not in there]
    if made_up:
        raise BrokenPromiseError(f"{made_up[0]} is in no file and was made up")
    return "loaded as written"


KNOBS: dict[str, Any] = {"eval_every": 0, "checkpoint_every": 1, "forests_every": 0, "prompts": 2}


@functools.cache
def _run() -> tuple[Path, dict[str, Any]]:
    """A run of two steps, and the weights that a third one leads to."""
    torch.set_num_threads(1)
    place = Path(tempfile.mkdtemp(prefix="attack-run-"))
    train_tiny(place / "run", steps=2)
    shutil.copytree(place / "run", place / "on")
    return place / "run", train_tiny(place / "on", resume=True, steps=3)


def train_tiny(out: Path, **how: Any) -> dict[str, Any]:
    """A run of a tiny policy, and the weights that it ends with."""
    import rolltree
    from tests.train.toy import KNOBS as USUAL
    from tests.train.toy import Early, tiny_policy

    done = rolltree.train("grpo", tiny_policy(), Early(), out=out, **{**USUAL, **KNOBS, **how})
    return {name: tensor.clone() for name, tensor in done.model.state_dict().items()}


def _checkpoint(rng: random.Random, place: Path) -> str:
    template, goal = _run()
    out = place / "run"
    shutil.copytree(template, out)
    before = (out / "metrics.jsonl").read_bytes()
    _harm(rng, max((out / "checkpoints").glob("step-*")))
    fallback = rng.random() < 0.5
    try:
        got = train_tiny(out, resume=True, steps=3, fallback=fallback)
    except RolltreeError as error:
        if fallback:
            raise BrokenPromiseError(f"an older checkpoint was whole and was not taken: {error}") from error
        if (out / "metrics.jsonl").read_bytes() != before:
            raise BrokenPromiseError("a refused try changed the metrics") from error
        return _sentence(error)
    if any(not torch.equal(tensor, goal[name]) for name, tensor in got.items()):
        raise BrokenPromiseError("the run went on to other weights")
    return "went on to the same weights"


ATTACKS = (
    Attack("model-folders", "model folders with files cut, gone, swapped, flipped and rewritten", _folder, 12, 400),
    Attack("checkpoints", "checkpoints harmed in the same ways, then resumed", _checkpoint, 2, 150),
)
