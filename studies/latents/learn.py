"""Learning curves on digits at equal denoiser calls: `python -m studies.latents.learn --out results.jsonl`.

A call is one pass of the denoiser for one latent; a trained step counts three more (forward, and twice as much
backward). Every arm has sixteen leaves a prompt and the same calls in all, so cheaper trees make more steps. The late
split is the control: its paths part only at the end, where little can still change, although its gradient has the best
signal-to-noise per call of all. A line is written after every run, and runs that stand in the file are not made again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from scipy import stats

from rolltree.recipe.registry import load_recipe
from rolltree.training.config import TrainConfig
from rolltree.training.start import train

POINTS = 6
"""Evaluations on the way, besides the one before."""
PROMPTS = 4


@dataclass(frozen=True)
class LearnStudy:
    """What to run."""

    out: Path
    seeds: int = 8
    task: str = "digits"
    rate: float = 5e-4
    plan: bool = False
    """Print what would be run and what stands, and run nothing."""
    arms: tuple[str, ...] = field(default_factory=tuple[str, ...])
    """Some of the arms; all when left out."""


@dataclass(frozen=True)
class LatentArm:
    """A recipe with its denoiser calls a prompt and step, and the steps that all calls are."""

    recipe: str
    knobs: Mapping[str, Any]
    calls: int
    steps: int


# Sampled calls + 3 · trained steps, of ten steps of which the last has no noise.
ARMS: dict[str, LatentArm] = {
    "flat": LatentArm("flow_grpo", {"group": 16}, 160 + 3 * 144, 36),
    "branch": LatentArm("branch_grpo", {"splits": "0,3,6", "first": 2}, 100 + 3 * 84, 60),
    "branch-terminal": LatentArm("branch_grpo", {"splits": "0,3,6", "first": 2, "scale": "leaf_std"}, 100 + 3 * 84, 60),
    "late": LatentArm("branch_grpo", {"splits": "6,7,8", "first": 2}, 56 + 3 * 40, 120),
}


def run_arm(name: str, seed: int, study: LearnStudy) -> dict[str, Any]:
    """One run's curve: (calls, pass@1, mean outcome) at each evaluation."""
    arm = ARMS[name]
    config = TrainConfig(
        steps=arm.steps, prompts=PROMPTS, seed=seed, eval_every=arm.steps // POINTS, eval_items=128, eval_samples=2,
        checkpoint_every=0, forests_every=0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        recipe: Any = load_recipe(arm.recipe, **arm.knobs)
        result = train(recipe, "digits", study.task, out=Path(folder) / "run", config=config, quiet=True,
                       lr=study.rate)  # fmt: skip
    curve = [
        (int(line["step"]) * arm.calls * PROMPTS, line["eval/pass@1"], line["eval/reward"])
        for line in result.metrics if line["kind"] == "eval"
    ]  # fmt: skip
    return {"arm": name, "seed": seed, "task": study.task, "rate": study.rate, "curve": curve}


def table(lines: list[dict[str, Any]]) -> str:
    """Means over seeds with 95 % intervals, and paired differences to the flat arm."""
    rows = ["| arm | seeds | outcome at 1/6 | at 3/6 | at the end | solved at the end | end − flat (paired) |",
            "|---|---|---|---|---|---|---|"]  # fmt: skip
    held = {(line["arm"], line["seed"]): np.array(line["curve"]) for line in lines}
    for arm in ARMS:
        seeds = sorted(seed for name, seed in held if name == arm)
        if not seeds:
            continue
        curves = np.stack([held[arm, seed] for seed in seeds])
        told = [interval(curves[:, at, 2]) for at in (1, 3, POINTS)] + [interval(curves[:, POINTS, 1])]
        both = [seed for seed in seeds if ("flat", seed) in held]
        apart = [held[arm, s][POINTS, 2] - held["flat", s][POINTS, 2] for s in both] if arm != "flat" else []
        rows.append(f"| {arm} | {len(seeds)} | {' | '.join(told)} | {interval(np.array(apart)) if apart else ''} |")
    return "\n".join(rows)


UPDATES = (30, 60)
"""Where arms are compared at equal updates: the rate is constant behind its warm-up, so a curve does not know how long
its run is."""


def equal_updates(lines: list[dict[str, Any]]) -> str:
    """Outcomes after so many updates, read off the same curves, as lines between two evaluations."""
    rows = ["| arm | calls an update | after 30 updates | − flat (paired) | after 60 updates | − branch (paired) |",
            "|---|---|---|---|---|---|"]  # fmt: skip
    held = {(line["arm"], line["seed"]): line["curve"] for line in lines}

    def after(name: str, seed: int, updates: int) -> float:
        curve = np.array(held[name, seed])
        return float(np.interp(updates, curve[:, 0] / (ARMS[name].calls * PROMPTS), curve[:, 2]))

    for name, arm in ARMS.items():
        seeds = sorted(seed for other, seed in held if other == name)
        if not seeds:
            continue
        cells: list[str] = []
        for updates, beside in zip(UPDATES, ("flat", "branch"), strict=True):
            reached = updates <= arm.steps
            cells.append(interval([after(name, s, updates) for s in seeds]) if reached else "not reached")
            both = [s for s in seeds if (beside, s) in held] if reached and beside != name else []
            apart = [after(name, s, updates) - after(beside, s, updates) for s in both]
            cells.append(interval(apart) if apart else "")
        rows.append(f"| {name} | {arm.calls * PROMPTS} | {' | '.join(cells)} |")
    return "\n".join(rows)


def interval(values: Any) -> str:
    """Mean ± half the 95 % interval of Student's t."""
    if len(values) < 2:
        return f"{float(np.mean(values)):.3f}"
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{float(np.mean(values)):.3f} ± {float(half):.3f}"


def main(study: LearnStudy) -> None:
    """Run what is missing; print the table of what stands."""
    lines = [json.loads(line) for line in study.out.read_text().splitlines()] if study.out.exists() else []
    known = {(line["arm"], line["seed"]) for line in lines}
    for seed in range(study.seeds):
        for name in study.arms or ARMS:
            if (name, seed) in known:
                continue
            if study.plan:
                print(f"{name} seed {seed}: {ARMS[name].steps} steps")
                continue
            lines.append(run_arm(name, seed, study))
            with study.out.open("a") as sink:
                sink.write(json.dumps(lines[-1]) + "\n")
    print(table(lines), equal_updates(lines), sep="\n\n")


if __name__ == "__main__":
    main(tyro.cli(LearnStudy))
