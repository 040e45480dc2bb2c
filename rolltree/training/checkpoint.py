"""Checkpoints that continue exactly: HF weights, optimizer, randomness, cursor, and whatever else keeps state.

A checkpoint is a folder that appears whole or not at all; `whole.json` lists every file with its size and digest, so a
half-written or damaged one is refused by name instead of loaded.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rolltree.errors import RolltreeError
from rolltree.policy.load import no_progress_bar
from rolltree.policy.lora import save_weights
from rolltree.training.config import TrainError
from rolltree.tree.store.atomic import new_folder
from rolltree.tree.store.values import read_json

SEAL = "whole.json"
FORMAT = 1
"""What a checkpoint holds and under which names. A change that older code cannot read, or that cannot read older
checkpoints, takes the next number."""
_WAY = "resume from an older one with fallback=True (--fallback), or start a new run"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk."""

    path: Path
    step: int


def save_checkpoint(
    folder: Path, step: int, *, model: Any, tokenizer: Any, state: Mapping[str, Any], keep: int, note: str,
    peers: Mapping[str, Any] | None = None, more: Callable[[Path], None] = lambda _: None,
) -> Checkpoint:  # fmt: skip
    """Write `step-NNNNNN` with a loadable HF model and the training state, then remove all but the newest `keep`.

    Other trained models go to `peers/NAME` inside it, loadable in the same way; `more` writes whatever else belongs
    into the folder, before it is sealed.
    """
    path = folder / f"step-{step:06d}"
    with new_folder(path, overwrite=True) as partial:
        for name, each in {"": model, **(peers or {})}.items():
            place = partial / "peers" / name if name else partial
            with no_progress_bar():
                save_weights(each, place)
            if tokenizer is not None:
                tokenizer.save_pretrained(place)
        # Into a file of ours: where torch opens one itself, it does not say why it could not be written.
        with (partial / "training.pt").open("wb") as sink:
            torch.save({**state, "torch_rng": torch.get_rng_state(), "step": step}, sink)
        (partial / "README.md").write_text(note)
        more(partial)
        files = sorted(f for f in partial.rglob("*") if f.is_file())
        seal = {str(f.relative_to(partial)): [f.stat().st_size, _digest(f)] for f in files}
        (partial / SEAL).write_text(json.dumps({"format": FORMAT, "step": step, "files": seal}, indent=1))
    # Later ones are damaged ones that the run was resumed without: they must not count as the newest.
    mine = [c for c in checkpoints(folder) if c.step <= step]
    for old in (*mine[:-keep], *(c for c in checkpoints(folder) if c.step > step)):
        shutil.rmtree(old.path)
    return Checkpoint(path, step)


def checkpoints(folder: Path) -> list[Checkpoint]:
    """Checkpoints in a folder, oldest first; whether they are whole is checked when they are read."""
    names = sorted(p for p in folder.glob("step-*") if p.is_dir() and p.name[5:].isdigit())
    return [Checkpoint(p, int(p.name[5:])) for p in names]


def read_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """The training state of a checkpoint, after its seal was checked."""
    check_seal(checkpoint.path)
    with understood(checkpoint):
        loaded: Any = torch.load(checkpoint.path / "training.pt", map_location="cpu", weights_only=True)
        return {**loaded}


@contextmanager
def understood(checkpoint: Checkpoint) -> Generator[None]:
    """Say in one sentence that a checkpoint lacks a part of the state, or holds it in another form."""
    try:
        yield
    except RolltreeError:
        raise
    except Exception as error:  # what is wrong with it shows wherever it is used
        told = next(iter(str(error).splitlines()), "")
        form = f"is of another form ({type(error).__name__}: {told})"
        what = f"lacks {error}" if isinstance(error, KeyError) else form
        raise TrainError(
            f"the state in checkpoint {checkpoint.path} {what}; it was written for other parts or by another version: "
            "resume with what wrote it, or start a new run"
        ) from error


def check_seal(path: Path) -> None:
    """Raise one sentence if a checkpoint is not exactly what was written."""
    if not (path / SEAL).is_file():
        raise TrainError(f"checkpoint {path} is half-written: {SEAL} is missing; {_WAY}")
    try:
        seal: dict[str, Any] = read_json((path / SEAL).read_text())
        files: dict[str, tuple[int, str]] = {str(k): (int(size), str(d)) for k, (size, d) in seal["files"].items()}
        wrote = int(seal.get("format", 0))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TrainError(f"checkpoint {path} is damaged: {SEAL} cannot be read; {_WAY}") from None
    if wrote != FORMAT:
        raise TrainError(
            f"checkpoint {path} has format {wrote} and this Rolltree reads {FORMAT}; resume with the version that "
            "wrote it (ran_on in config.json), or start a new run from its weights"
        )
    strange = [f.name for f in path.glob("*.safetensors") if f.name not in files]
    if strange:
        raise TrainError(f"checkpoint {path} holds {strange[0]}, which was not written with it; remove it, or {_WAY}")
    for name, (size, digest) in files.items():
        file = path / name
        if not file.is_file():
            raise TrainError(f"checkpoint {path} is half-written: {name} is missing; {_WAY}")
        if file.stat().st_size != size or _digest(file) != digest:
            raise TrainError(f"checkpoint {path} is damaged: {name} is not what was written; {_WAY}")


def latest(folder: Path, *, fallback: bool = False) -> Checkpoint | None:
    """The newest checkpoint, which must be whole; with `fallback` the newest whole one. None = there are none."""
    found = checkpoints(folder)
    for checkpoint in reversed(found):
        try:
            check_seal(checkpoint.path)
        except TrainError:
            if not fallback or checkpoint is found[0]:
                raise
            continue
        return checkpoint
    return None


def _digest(file: Path) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "blake2b").hexdigest()[:32]
