"""Runs of a comparison made by the training loop, in folders that can be continued and looked into like any run."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol, cast

from rolltree.compare.names import COMPARED, COSTS, HELD_OUT, PER_LEAF
from rolltree.compare.runner import Spec, Tick
from rolltree.compare.trace import LabError, Trace
from rolltree.compare.watch import RunWatch, noted
from rolltree.control.registry import CONTROLS
from rolltree.knobs.varying import by_share, schedule, schedules
from rolltree.metrics.log import read_metrics
from rolltree.metrics.registry import value_in
from rolltree.recipe.check import check, check_rewards
from rolltree.recipe.compose import Steered
from rolltree.recipe.recipe import Counter, Parts
from rolltree.recipe.registry import RECIPES, load_recipe
from rolltree.task.protocol import Task, spoken_by
from rolltree.task.registry import load_task
from rolltree.training.config import Optim, TrainConfig
from rolltree.training.loop import RunEvent
from rolltree.training.start import parts_of, train, with_knobs

IDLE = 25
"""Steps in a row without a trained token after which a budget of trained tokens is given up."""


SHARED: Mapping[str, str] = {
    "seed": "--first-seed",
    "steps": "--budget",
    "decoded": "--budget",
    "seconds": "--budget",
    "eval_every": "--eval-every",
    "eval_items": "--eval-items",
    "eval_samples": "--eval-samples",
    "end_items": "--eval-items",
}
"""Knobs of the trainer that a comparison sets for all arms and seeds, and the option that does."""


class LoadTask(Protocol):
    """Makes a task by name, as the registry does."""

    def __call__(self, name: str, *, level: int | None = None) -> Task:
        """The task at a level; None = its default."""
        ...


@dataclass(frozen=True)
class TrainRunner:
    """Trains with `rolltree.train`. `load` lets a task that is in no registry be compared on."""

    load: LoadTask = load_task

    def check(self, spec: Spec) -> None:
        """Build everything once and see that the parts fit."""
        from rolltree.engine.choose import local_engine
        from rolltree.policy.load import load_model

        parts = parts_of(_recipe(spec))
        _check_shares(spec)
        engine = local_engine(load_model(spec.conditions.model))
        try:
            task = spoken_by(self._task(spec), engine.codec)
            check(parts, engine, task)
            check_rewards(parts, engine, task)
        finally:
            asyncio.run(engine.close())

    def parts(self, spec: Spec) -> Parts:
        """The composition that the arm trains with."""
        return parts_of(_recipe(spec))

    def made_of(self, spec: Spec) -> Iterable[Any]:
        """This runner, which uses the trainer and the engine, the recipe with all its parts, and the task."""
        recipe = _recipe(spec)
        return self, recipe, parts_of(recipe), self._task(spec)

    def run(self, spec: Spec, folder: Path, tick: Tick) -> Trace:
        """Train until the budget is spent; continue from the newest checkpoint where there is one."""
        watch = RunWatch(folder.parent / "watched.jsonl")
        config = settings(spec)
        what = f"{spec.arm.label}, seed {spec.seed}"
        costs = _Costs(spec.conditions.axis)

        def listen(live: RunEvent) -> None:
            watch(live)
            costs(live)
            tick(costs.now, what)

        while True:
            result = train(
                _recipe(spec), spec.conditions.model, self._task(spec), out=folder, config=config,
                resume=(folder / "config.json").exists(), listen=listen, quiet=True,
            )  # fmt: skip
            if spec.conditions.axis != "trained" or _trained(result.metrics) >= spec.conditions.budget:
                break
            _check_idle(result.metrics, spec)
            config = with_knobs(config, {"steps": config.steps + spec.conditions.eval_every})
        return read_run(
            folder, watch.path, spec.arm.label, spec.seed, spec.conditions.eval_samples, _recipe(spec).card.counter
        )

    def _task(self, spec: Spec) -> Task:
        return self.load(spec.conditions.task, level=spec.conditions.level)


def settings(spec: Spec) -> TrainConfig:
    """The trainer's knobs for a run. It has no limit on trained tokens: it is then run some steps at a time."""
    on = spec.conditions
    base = TrainConfig(
        steps=on.eval_every if on.axis == "trained" else sys.maxsize,
        seed=spec.seed,
        decoded=math.ceil(on.budget) if on.axis == "decoded" else None,
        seconds=on.budget if on.axis == "seconds" else None,
        eval_every=on.eval_every,
        eval_items=on.eval_items,
        eval_samples=on.eval_samples,
        end_items=on.end_items,
        max_tokens=on.max_tokens,
        keep_checkpoints=1,
    )
    own = dict(_knobs(spec, "train") + _knobs(spec, "optim"))
    _check_kinds(spec, TrainConfig, own)
    _check_kinds(spec, Optim, own)
    for knob in own:
        if knob in SHARED:
            raise LabError(f"train.{knob} would make the runs of a comparison unequal; {SHARED[knob]} sets it for all")
    return with_knobs(base, own)


def _check_shares(spec: Spec) -> None:
    """Refuse schedules in shares of a run that has no end of its own: on trained tokens it is run some steps at a
    time."""
    texts = schedules(_recipe(spec)) | {f"optim.{n}": t for n, t in schedules(settings(spec).optim).items()}
    for name, text in texts.items():
        if spec.conditions.axis == "trained" and by_share(text):
            raise LabError(
                f"{name}={text!r} of {spec.arm.label!r} takes shares of a run, which no budget of trained "
                f"tokens gives; count decoded tokens, or give it in steps (--set {spec.arm.label}:{name}=...)"
            )


def read_run(folder: Path, watched: Path, label: str, seed: int, samples: int, counter: Counter | None = None) -> Trace:
    """A run folder as a trace: costs add up over training steps, evaluations stand at the cost of the step before.

    A step that does not measure the recipe's `counter` is one in which its mechanism did not act: it stands at rest.
    """
    rows: list[dict[str, float]] = []
    cost = {"decoded": 0.0, "trained": 0.0, "seconds": 0.0}
    for line in read_metrics(folder / "metrics.jsonl"):
        if line["kind"] == "train":
            cost = {
                "decoded": float(line["budget/decoded_total"]),
                "trained": cost["trained"] + float(line.get("budget/trained", 0.0)),
                "seconds": float(line["time/total"]),
            }
            acted: dict[str, float] = {}
            if counter is not None:
                seen = value_in(line, counter.metric)
                acted[counter.metric] = counter.rest if seen is None else float(seen)
            rows.append({**cost, **_finite({n: value_in(line, n) for n in COMPARED}), **_per_leaf(line), **acted,
                         **_costs(line)})  # fmt: skip
        elif line["kind"] == "eval":
            names = dict.fromkeys(("eval/pass@1", f"eval/pass@{samples}", *HELD_OUT))
            rows.append({**cost, **_finite({name: line[name] for name in names})})
    first, last = noted(watched)
    return Trace(label, seed, tuple(rows), last, str(folder), first)


def _per_leaf(line: Mapping[str, Any]) -> dict[str, float]:
    """What a rollout cost: branches share what stands above them."""
    leaves = float(line.get("budget/leaves") or 0.0)
    spent = {name: name.removesuffix("_per_leaf") for name in PER_LEAF} if leaves else {}
    return {name: float(line.get(total) or 0.0) / leaves for name, total in spent.items()}


def _costs(line: Mapping[str, Any]) -> dict[str, float]:
    """What a step cost beside what it may be budgeted by; what a step leaves out it did not spend."""
    return {name: float(line.get(name) or 0.0) for name in COSTS}


class _Costs:
    """The cost so far on one axis, for the progress bar."""

    def __init__(self, axis: str) -> None:
        self._axis = axis
        self.now = 0.0

    def __call__(self, live: RunEvent) -> None:
        n = live.numbers
        if live.kind == "trained":
            if self._axis == "trained":
                self.now += n.get("budget/trained", 0.0)
            else:
                self.now = n["budget/decoded_total" if self._axis == "decoded" else "time/total"]


def _recipe(spec: Spec) -> Any:
    """The recipe, or its parts under another control: the knob `control` names it, `control.X` sets its knobs."""
    own, steering = dict(_knobs(spec, "")), dict(_knobs(spec, "control"))
    name = own.pop("control", None)
    _check_kinds(spec, RECIPES.find(spec.arm.recipe), own)
    if name is not None:
        _check_kinds(spec, CONTROLS.find(str(name)), steering)
    recipe = load_recipe(spec.arm.recipe, **own)
    if name is None and steering:
        raise LabError(f"control.{min(steering)} is set for {spec.arm.label!r} but no control; add control=NAME")
    return recipe if name is None else Steered(recipe, str(name), steering)


def _check_kinds(spec: Spec, cls: type[Any], knobs: Mapping[str, Any]) -> None:
    """Refuse a value of another kind than its knob's, where the knob takes one kind only."""
    for field in fields(cls):
        kind, value = str(field.type).partition("[")[0], knobs.get(field.name)
        if isinstance(value, str) and schedule(value) is not None:
            continue
        if value is not None and kind in _KINDS and type(value) not in _KINDS[kind]:
            raise LabError(f"{field.name}={value} of {spec.arm.label!r} is no {_KINDS[kind][0].__name__}; give one")


_KINDS: Mapping[str, tuple[type, ...]] = {
    "int": (int,), "Tokens": (int,), "float": (float, int), "bool": (bool,), "tuple": (tuple, list)
}  # fmt: skip


def _knobs(spec: Spec, owner: str) -> list[tuple[str, Any]]:
    out: list[tuple[str, Any]] = []
    for name, value in spec.arm.knobs:
        whose, dot, knob = name.rpartition(".")
        if (whose if dot else "") == owner:
            out.append((knob, value))
    return out


def _trained(lines: list[dict[str, Any]]) -> float:
    return sum(float(line.get("budget/trained", 0.0)) for line in lines if line["kind"] == "train")


def _check_idle(lines: list[dict[str, Any]], spec: Spec) -> None:
    """A recipe that finds nothing to learn from would never spend a budget of trained tokens."""
    last = [line for line in lines if line["kind"] == "train"][-IDLE:]
    if len(last) == IDLE and not _trained(last):
        raise LabError(
            f"{spec.arm.label}, seed {spec.seed}, trained no token in {IDLE} steps (no group had variance); "
            "choose an easier level or count decoded tokens instead"
        )


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    return {k: float(v) for k, v in values.items() if isinstance(v, int | float) and math.isfinite(cast(float, v))}
