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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attack.frame import Attack, BrokenPromiseError

RECIPES = (
    "grpo", "gspo", "dapo", "treepo", "dars", "tis", "icepop", "areal", "dots", "remix", "ppo", "april", "cispo",
    "rloo", "otr", "e1", "scaler", "prompt_gdro", "latr", "mars2",
)  # fmt: skip
SCHEDULES = ("areal", "april", "verl", "slime", "rollart", "dart")
"""Under these rollouts overlap with training: a run goes on, and what it draws next is a matter of timing."""
TIMED = ("mars2",)
"""Recipes whose last digits are a matter of timing (docs/howto/resume.md)."""
PATIENCE = 180.0
"""Seconds after which a run hangs."""
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


def _train(recipe: str, knobs: dict[str, Any], out: Path, at: int, count: Path | None) -> None:
    import torch

    import rolltree
    from tests.train.toy import KNOBS, Early, tiny_policy

    torch.set_num_threads(1)
    seen = [0]

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS and (event != "open" or _inside(arguments[0], out)):
            seen[0] += 1
            if seen[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(heard)
    resume = (out / "config.json").exists()
    rolltree.train(recipe, tiny_policy(), Early(), out=out, resume=resume, **{**KNOBS, "steps": 4, **knobs})
    if count is not None:
        count.write_text(str(seen[0]))


def _inside(path: object, out: Path) -> bool:
    return isinstance(path, (str, Path)) and str(path).startswith(str(out))


@functools.cache
def _children() -> Any:
    """Clean processes that have everything imported and no threads."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["attack.kills", "rolltree.train.start", "tests.train.toy"])
    return context


def _run(
    recipe: str, knobs: dict[str, Any], out: Path, *, at: int = 0, after: float = 0.0, count: Path | None = None
) -> bool:
    """Run or resume in a child; killed at a count of events, or after some seconds. Whether it came to its end."""
    log = out.with_suffix(".log")
    job = functools.partial(_train, recipe, knobs, out, at, count)
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
        raise BrokenPromiseError(f"{recipe} {knobs} hangs after {PATIENCE:g} s: {log.read_text()[-500:]}")
    if child.exitcode not in (0, -signal.SIGKILL):
        raise BrokenPromiseError(f"{recipe} {knobs} did not go on: {log.read_text()[-1500:]}")
    return child.exitcode == 0


@functools.cache
def _whole(recipe: str, knobs: tuple[tuple[str, Any], ...]) -> tuple[list[dict[str, Any]], dict[str, Any], int, float]:
    """The run that nobody killed: its metrics, its weights, the events it took, and its seconds."""
    place = Path(tempfile.mkdtemp(prefix="attack-whole-"))
    try:
        _run(recipe, dict(knobs), place / "run", count=place / "count")
        lines = _metrics(place / "run")
        spent = float(lines[-1].get("time/total", 0) or 2.0) if lines else 2.0
        timeless = [{k: v for k, v in line.items() if not k.startswith(_TIMED)} for line in lines]
        return timeless, _weights(place / "run"), int((place / "count").read_text()), spent
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _metrics(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def _weights(out: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    newest = max((out / "checkpoints").glob("step-*"))
    return load_file(newest / "model.safetensors")


def killed(recipe: str, knobs: dict[str, Any], rng: random.Random, place: Path, *, exact: bool = True) -> str:
    """One run, killed once or twice, resumed to its end and compared."""
    lines, weights, events, _ = _whole(recipe, tuple(sorted(knobs.items())))
    out, kills = place / "run", 0
    for _ in range(rng.choice((1, 1, 2))):
        by_time = rng.random() < 0.2
        point = {"after": rng.uniform(0.05, 3.0)} if by_time else {"at": rng.randint(1, events)}
        done = _run(recipe, knobs, out, **point)
        kills += not done
        if done:
            break
    else:
        _run(recipe, knobs, out)
    mine = [{k: v for k, v in line.items() if not k.startswith(_TIMED)} for line in _metrics(out)]
    if exact:
        _same(lines, mine, f"{recipe} {knobs}")
        for name, tensor in _weights(out).items():
            if not bool((tensor == weights[name]).all()):
                raise BrokenPromiseError(f"{recipe} {knobs}: weight {name} differs after {kills} kills")
    steps = [line["step"] for line in mine if line["kind"] == "train"]
    if steps != list(range(1, steps[-1] + 1)):
        raise BrokenPromiseError(f"{recipe} {knobs}: steps {steps}")
    return f"{kills} kills, {'identical' if exact else 'went on'}" if kills else "not reached"


def _same(whole: list[dict[str, Any]], mine: list[dict[str, Any]], what: str) -> None:
    for a, b in zip(whole, mine, strict=True):
        for key in a.keys() | b.keys():
            if a.get(key) != b.get(key):
                raise BrokenPromiseError(f"{what}: {a['kind']} {a['step']} {key}: {a.get(key)} became {b.get(key)}")


def _any(rng: random.Random, place: Path) -> str:
    knobs: dict[str, Any] = {"seed": rng.randrange(2), "staleness": rng.choice((0, 0, 1))}
    recipe = rng.choice(RECIPES)
    if recipe == "april":  # its own schedule says how far rollouts run ahead
        knobs["staleness"] = 0
    return killed(recipe, knobs, rng, place, exact=recipe not in TIMED)


def _grpo(rng: random.Random, place: Path) -> str:
    return killed("grpo", {"seed": 0, "steps": 2, "eval_every": 0, "forests_every": 0}, rng, place)


def _scheduled(rng: random.Random, place: Path) -> str:
    return killed("grpo", {"scheduler": rng.choice(SCHEDULES)}, rng, place, exact=False)


ATTACKS = (
    Attack("kills", "a short run killed at any point and resumed", _grpo, 1, 60),
    Attack("kills-recipes", "runs of many recipes killed at any point and resumed", _any, 0, 200),
    Attack("kills-schedules", "runs whose rollouts overlap with training, killed and resumed", _scheduled, 0, 60),
)
