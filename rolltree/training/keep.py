"""What a run keeps on disk to go on from: its checkpoints, its knobs, and the batch on which it diverged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rolltree.errors import refused_write
from rolltree.knobs.varying import by_share
from rolltree.policy.load import LoadedModel, read_weights
from rolltree.policy.lora import load_lora
from rolltree.policy.weights import load_weights
from rolltree.training.backward import DivergedError
from rolltree.training.checkpoint import Checkpoint, checkpoints, read_state, save_checkpoint, understood
from rolltree.training.config import TrainError
from rolltree.training.loop import Loop, RunEvent
from rolltree.training.run import RunFolder, plain
from rolltree.training.step_metrics import RunTotals
from rolltree.tree import Tree
from rolltree.tree.store.atomic import naming
from rolltree.tree.store.parquet import save

PAST, UNDER_WAY = "past", "under-way"
"""Folders beside a checkpoint's state: trees that may be recalled, and rollouts that have not ended."""


def save_run(loop: Loop, loaded: LoadedModel, folder: RunFolder) -> None:
    """Write a checkpoint of everything the run needs to go on, and tell the listener."""
    note = f"{loop.recipe.name} on {loop.task.name}, after step {loop.done}. See the README two folders up.\n"
    tokenizer = getattr(loaded.codec, "tokenizer", None)
    try:
        saved = save_checkpoint(
            folder.checkpoints, loop.done, model=loop.learner.policy.model, tokenizer=tokenizer,
            state=state_of(loop), keep=loop.config.keep_checkpoints, note=note,
            peers={name: peer.learner.policy.model for name, peer in loop.peers.items() if peer.learner is not None},
            more=lambda place: _save_buffers(loop, place),
        )  # fmt: skip
    except OSError as error:
        if (said := refused_write(error)) is None:
            raise
        raise _no_checkpoint(folder, loop.done, said) from error
    loop.listen(RunEvent("checkpoint", loop.done, note=f"saved {saved.path.name}"))


def _no_checkpoint(folder: RunFolder, step: int, said: OSError) -> TrainError:
    """What is said of a checkpoint that found no place: where, why, and from where the run goes on."""
    whole = [c.path.name for c in checkpoints(folder.checkpoints)]
    way = f"goes on from {whole[-1]}, which is whole" if whole else "begins again, because no checkpoint was saved yet"
    return TrainError(
        f"the checkpoint of step {step} could not be written to {said.filename or folder.checkpoints}: "
        f"{said.strerror}; make room there, and --resume {way}"
    )


def load_run(loop: Loop, where: Checkpoint) -> None:
    """Bring a loop to where a checkpoint was written."""
    state = read_state(where)
    if loop.config.lora is not None:
        load_lora(loop.learner.policy.model, where.path)
    else:
        load_weights(loop.learner.policy.model, read_weights(where.path), where.path)
    with understood(where):
        restore(loop, state)
        loop.past.load(where.path / PAST)
        loop.collector.load(where.path / UNDER_WAY, loop.done)
        torch.set_rng_state(state["torch_rng"])


def state_of(loop: Loop) -> dict[str, Any]:
    """What a checkpoint must hold besides weights."""
    return {
        "done": loop.done, "told": loop.told, "cursor": loop.cursor.taken, "learner": loop.learner.state_dict(),
        "readings": None if loop.readings is None else loop.readings.state_dict(),
        "spent": {n: getattr(loop.spent, n) for n in RunTotals.__slots__},
        "peers": {name: peer.state() for name, peer in loop.peers.items()},
        "control": loop.control.state_dict(),
    }  # fmt: skip


def restore(loop: Loop, state: Mapping[str, Any]) -> None:
    """Go back to a checkpoint's state; the policy's weights are loaded by the caller."""
    loop.done, loop.told = int(state["done"]), dict(state["told"])
    loop.cursor.rewind(int(state["cursor"]))
    loop.learner.load_state_dict(state["learner"])
    if (held := state["readings"]) is not None and loop.readings is not None:
        loop.readings.load_state_dict(held)
    loop.spent = RunTotals(**state["spent"])
    for name, peer in loop.peers.items():
        peer.restore(state["peers"][name])
    loop.control.load_state_dict(state["control"])
    loop.stage()


def _save_buffers(loop: Loop, place: Path) -> None:
    """Write what is under way and what may be recalled beside a checkpoint's state."""
    loop.past.save(place / PAST)
    if loop.done:
        loop.collector.save(place / UNDER_WAY)


def keep_offender(loop: Loop, folder: RunFolder, error: DivergedError) -> TrainError:
    """Store the batch on which the run diverged; returns the error that names it."""
    place = folder.path / "offending" / f"step-{loop.done + 1:06d}"
    micro = error.micro
    trees: list[Tree] = error.trees
    save(trees, place, overwrite=True, states="drop")
    if micro is not None:
        arrays = {n: getattr(micro, n) for n in ("gain", "loss", "weight", "engine", "sampled", "version", "forced")}
        with naming(place / "batch.npz"):
            np.savez(place / "batch.npz", actions=micro.packed.actions, action=micro.packed.action, **arrays)
    return TrainError(
        f"step {loop.done + 1} diverged: {error}; the batch is in {place}; look at it, or resume from the newest "
        "checkpoint with a lower learning rate"
    )


def as_json(described: Mapping[str, Any]) -> dict[str, Any]:
    """Knobs as they are read back from config.json."""
    out: dict[str, Any] = json.loads(json.dumps(described, default=plain))
    return out


def check_same(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume under other knobs; only where to stop and what never changes a number may."""
    free = {"steps", "decoded", "seconds", "trackers", "keep_checkpoints", "ranks", "device", "gradient_checkpointing",
            "piece"}  # fmt: skip
    old, new = (Path(str(about["model"])).name if about.get("model") else "" for about in (before, now))
    if old and old != new:  # the same weights may lie in another place now
        raise TrainError(f"the run was started with the model {old} and cannot be resumed with {new}")
    knobs: Any = now["train"]["optim"]
    steps = [about["train"].get("steps") for about in (before, now) if "train" in about]
    if knobs["lr_schedule"] != "constant" and knobs["lr_updates"] is None and len(set(steps)) > 1:
        raise TrainError(
            f"the run was started with train.steps={steps[0]}, over which its learning rate falls, and cannot be "
            f"resumed with {steps[1]}; give lr_updates at the start of a run whose end is not known"
        )
    _check_shares(before, now)
    for part in ("parts", "varying", "task", "train"):
        old, new = before.get(part), now[part]
        if isinstance(old, dict) and isinstance(new, dict):
            # A knob the run was started without did not exist yet.
            changed = [k for k in new if k not in free and k in old and old[k] != new[k]]
            if changed:
                k = changed[0]
                raise TrainError(
                    f"the run was started with {part}.{k}={old.get(k)} and cannot be resumed with {new[k]}"
                )
        elif old != new:
            raise TrainError(f"the run was started with {part} {old} and cannot be resumed with {new}")


def _check_shares(before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse another end of a run in whose shares a schedule counts."""
    optim: Mapping[str, Any] = now["train"]["optim"]
    texts: dict[str, Any] = {**now["varying"], **{f"optim.{name}": value for name, value in optim.items()}}
    shares = [(name, text) for name, text in texts.items() if isinstance(text, str) and by_share(text)]
    for end in ("steps", "decoded", "seconds"):
        old, new = (about.get("train", {}).get(end) for about in (before, now))
        if shares and old != new:
            name, text = shares[0]
            raise TrainError(
                f"the run was started with train.{end}={old}, of which {name}={text!r} takes shares, and cannot be "
                f"resumed with {new}; start a run whose end is not known with a schedule in steps"
            )
