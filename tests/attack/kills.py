"""Runs that are killed at any point and resumed: at the n-th system call on files or processes, or at any moment.

Promised: a killed run always goes on, and where the docs promise it, writes the numbers and weights that it would have
written. A case is a recipe, a schedule and one or two points; the run that nobody killed is made once for each.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.attack.frame import Attack, BrokenPromiseError, Chance
from tests.attack.resumable import SCHEDULES, SHORT, Resumable, of_recipe, of_schedule, recipe_names

PATIENCE = 180.0
"""Seconds after which a run hangs."""
_PRELOAD = ("tests.attack.kills", "rolltree.training.start", "rolltree.engine.local", "rolltree.tree.store.parquet",
            "tests.train.toy", "pandas", "pyarrow.parquet", "safetensors.torch",
            "transformers.models.llama.modeling_llama")  # fmt: skip
"""What every run imports: nine tenths of the time of one this short."""
_EVENTS = frozenset({"open", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"})
_TIMED = ("time/",)


def _main(work: Callable[[], None], log: Path) -> None:
    """In a child: do it, and end without Python's own ending."""
    with log.open("w") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    import traceback

    try:
        work()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _train(run: Resumable, out: Path, at: int, count: Path | None) -> None:
    import torch

    import rolltree
    from rolltree.recipe.registry import load_recipe
    from tests.train.toy import tiny_policy

    torch.set_num_threads(1)
    seen = [0]

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS and (event != "open" or _inside(arguments[0], out)):
            seen[0] += 1
            if seen[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)
    resume = (out / "config.json").exists()
    recipe = load_recipe(run.recipe, **run.recipe_knobs)
    rolltree.train(recipe, tiny_policy(), run.task, out=out, resume=resume, **{**SHORT, **run.knobs})
    if count is not None:
        count.write_text(str(seen[0]))


def _inside(path: object, out: Path) -> bool:
    return isinstance(path, (str, Path)) and str(path).startswith(str(out))


@functools.cache
def _children() -> Any:
    """Clean processes that have everything imported and no threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOAD))
    return context


def _run(run: Resumable, out: Path, *, at: int = 0, after: float = 0.0, count: Path | None = None) -> bool:
    """Run or resume in a child; killed at a count of events, or after some seconds. Whether it came to its end."""
    log = out.with_suffix(".log")
    job = functools.partial(_train, run, out, at, count)
    child = _children().Process(target=_main, args=(job, log))
    child.start()
    timer = threading.Timer(after, child.kill) if after else None
    if timer is not None:
        timer.start()
    child.join(PATIENCE)
    if timer is not None:
        timer.cancel()
    if child.is_alive():
        child.kill()
        child.join()
        raise BrokenPromiseError(f"{run.title} hangs after {PATIENCE:g} s: {log.read_text()[-500:]}")
    if child.exitcode not in (0, -signal.SIGKILL):
        raise BrokenPromiseError(f"{run.title} did not go on: {log.read_text()[-1500:]}")
    return child.exitcode == 0


@dataclass(frozen=True, slots=True)
class Whole:
    """The run that nobody killed."""

    metrics: list[dict[str, Any]]
    weights: dict[str, Any]
    events: int
    """Events at which it could have been killed."""
    seconds: float


_wholes: dict[str, Whole] = {}


def _whole(run: Resumable) -> Whole:
    if run.title not in _wholes:
        place, began = Path(tempfile.mkdtemp(prefix="attack-whole-")), time.monotonic()
        try:
            _run(run, place / "run", count=place / "count")
            spent, events = time.monotonic() - began, int((place / "count").read_text())
            _wholes[run.title] = Whole(_metrics(place / "run"), _weights(place / "run"), events, spent)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return _wholes[run.title]


def _metrics(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if not k.startswith(_TIMED)} for line in lines]


def _weights(out: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    newest = max((out / "checkpoints").glob("step-*"))
    return {f"{file.relative_to(newest)}: {name}": tensor for file in sorted(newest.rglob("*.safetensors"))
            for name, tensor in load_file(file).items()}  # fmt: skip


def killed(run: Resumable, rng: random.Random, place: Path) -> str:
    """One run, killed up to three times, resumed to its end and compared."""
    whole = _whole(run)
    out, kills = place / "run", 0
    for _ in range(rng.choice((1, 2, 3))):
        by_time = rng.random() < 0.3
        point = {"after": rng.uniform(0.05, whole.seconds)} if by_time else {"at": rng.randint(1, whole.events)}
        done = _run(run, out, **point)
        kills += not done
        if done:
            break
    else:
        _run(run, out)
    mine = _metrics(out)
    if run.exact:
        same(whole.metrics, mine, run.title)
        for name, tensor in _weights(out).items():
            if not bool((tensor == whole.weights[name]).all()):
                raise BrokenPromiseError(f"{run.title}: weight {name} differs after {kills} kills")
    steps = [line["step"] for line in mine if line["kind"] == "train"]
    if steps != list(range(1, SHORT["steps"] + 1)):
        raise BrokenPromiseError(f"{run.title}: steps {steps}")
    _conserved(mine[-1] if mine[-1]["kind"] == "train" else mine[-2], run.title)
    return f"{kills} kills, {'identical' if run.exact else 'went on'}" if kills else "not reached"


def same(whole: list[dict[str, Any]], mine: list[dict[str, Any]], what: str) -> None:
    """All numbers of two runs are the same."""
    if len(whole) != len(mine):
        raise BrokenPromiseError(f"{what}: {len(whole)} lines became {len(mine)}")
    for a, b in zip(whole, mine, strict=True):
        for key in sorted(a.keys() | b.keys()):
            if a.get(key) != b.get(key):
                raise BrokenPromiseError(f"{what}: {a['kind']} {a['step']} {key}: {a.get(key)} became {b.get(key)}")


def _conserved(line: dict[str, Any], what: str) -> None:
    """Under a schedule, every rollout that was begun is trained, dropped or under way."""
    told = {k.rpartition("/")[2]: v for k, v in line.items() if k.startswith("rollout/scheduled/")}
    if told and told.pop("submitted") != sum(told.values()) + line.get("rollout/under_way", 0):
        raise BrokenPromiseError(f"{what}: rollouts were lost or counted twice: {line}")


def _recipes(rng: Chance, place: Path) -> str:
    """Through all recipes, in each round ahead of the weights by another number of versions."""
    turn, at = divmod(rng.number, len(recipe_names()))
    return killed(of_recipe(recipe_names()[at], staleness=(0, 1)[turn % 2]), rng, place)


def _grpo(rng: Chance, place: Path) -> str:
    return killed(of_recipe("grpo"), rng, place)


def _schedules(rng: Chance, place: Path) -> str:
    """Through all schedules, with recipes of flat groups, refills, trees and rounds."""
    turn, at = divmod(rng.number, len(SCHEDULES))
    return killed(of_schedule(SCHEDULES[at], recipe=("grpo", "dapo", "treepo", "dars")[turn % 4]), rng, place)


ATTACKS = (
    Attack("kills", "a short run killed at any point and resumed", _grpo, 1, 20),
    Attack("kills-recipes", "runs of all recipes killed at any point and resumed", _recipes, 1, 144),
    Attack("kills-schedules", "runs of all schedules killed at any point and resumed", _schedules, 2, 28),
)
