"""Rollouts from coarse weights: the same rounding on both sides, another one, and corrections: `python -m
studies.precision`.

Jet-RL (arXiv 2601.14243) rounds in training as in the rollout. What serving engines keep (int8, fp8) hardly moves a
small policy, so integers of four bits with a scale for 16 neighbours stand beside them. Rate and updates are those
calibrated for the regime `fresh`. Finished runs are kept, so an interrupted call goes on.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, cast

import numpy as np
import torch

from rolltree.compare.arms import Arm, Value, arms
from rolltree.compare.curves import endpoint
from rolltree.compare.regimes import calibrated, regime
from rolltree.compare.runner import Shelf, Spec
from rolltree.compare.stats import paired_interval
from rolltree.compare.stats.paired import t_interval
from rolltree.compare.trace import Trace, write_json
from rolltree.compare.train_runner import TrainRunner
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import Request, Sample, Sampling
from rolltree.metrics.log import read_metrics
from rolltree.policy.formats import Precision
from rolltree.policy.load import load_model
from rolltree.policy.precision import linear_weights, round_forward, rounded
from rolltree.task.registry import load_task
from studies.command import run_study
from studies.lab.claim import Measured

COLLAPSED, STEPS = 0.5, 5
"""A run has collapsed where the share of right rollouts over so many steps falls below this share of the first held-out
pass@1."""


def _arm(label: str, recipe: str, engine: str = "full", trainer: str = "full") -> Arm:
    knobs: tuple[tuple[str, Value], ...] = (("train.engine_precision", engine), ("train.train_precision", trainer))
    return Arm(label, recipe, knobs)


ARMS = (
    _arm("full on both sides", "grpo"),
    _arm("int8 in the engine", "grpo", "int8"),
    _arm("fp8 in the engine", "grpo", "fp8"),
    _arm("int4 on both sides", "grpo", "int4", "int4"),
    _arm("int4 in the engine", "grpo", "int4"),
    _arm("int4 in the engine, truncated weights (tis)", "tis", "int4"),
    _arm("int4 in the engine, masked weights (icepop)", "icepop", "int4"),
)
"""The first is what the others are held against."""


@dataclass(frozen=True)
class PrecisionSettings:
    """What is trained, and where the result goes."""

    budget: int = 60_000
    """Decoded tokens of a run."""
    seeds: int = 5
    """Seeds of each arm."""
    items: int = 256
    """Held-out items of the evaluations at the beginning and the end, with four samples each."""
    out: Path = Path("docs/measured")
    """Folder for precision.md and precision.json."""
    cache: Path = Path("runs/cache")
    """Finished runs, found again by their content."""


@dataclass(frozen=True)
class PrecisionRow:
    """One run."""

    arm: str
    seed: int
    mismatch: float
    """Mean over the run, nats per token."""
    first: float
    """Held-out pass@1 before the first step."""
    last: float
    """And at the end."""
    lowest: float
    """Least share of right rollouts over some steps in a row."""
    bounded: float
    """Share of actions whose weight was truncated or masked."""

    @property
    def collapsed(self) -> bool:
        """Whether training accuracy ever fell below half of the first policy's."""
        return self.lowest < COLLAPSED * self.first


def main(settings: PrecisionSettings) -> None:
    """Train (or find) every run, seed by seed, and write the page as it grows."""
    rows: list[PrecisionRow] = []
    for seed in range(settings.seeds):
        for arm in ARMS:
            rows.append(made(arm, seed, settings))
            print(rows[-1], flush=True)
        write(settings.out, settings, rows)


def row(label: str, trace: Trace) -> PrecisionRow:
    """A run's numbers."""
    curve, right = trace.curve("pass@1")[1], trace.curve("reward/solved")[1]
    smooth = np.convolve(right, np.ones(STEPS) / STEPS, "valid") if len(right) >= STEPS else right
    steps = [line for line in read_metrics(Path(trace.folder) / "metrics.jsonl") if line["kind"] == "train"]

    def over(name: str) -> float:
        return mean(float(line.get(name) or 0.0) for line in steps)

    return PrecisionRow(
        label, trace.seed, over("policy/mismatch"), float(curve[0]), endpoint(trace, "pass@1"),
        float(smooth.min()), over("policy/is_weight_bounded"),
    )  # fmt: skip


def write(folder: Path, settings: PrecisionSettings, rows: Sequence[PrecisionRow]) -> None:
    """The page and its numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"command": "python -m studies.precision", "budget": settings.budget, "rows": [vars(r) for r in rows]}
    write_json(folder / "precision.json", told)
    (folder / "precision.md").write_text(page(rows, settings.budget), encoding="utf-8")


def page(rows: Sequence[PrecisionRow], budget: int) -> str:
    """Mismatch, collapses and accuracy by arm, with paired intervals against the first."""
    by: Mapping[str, list[PrecisionRow]] = {a.label: [r for r in rows if r.arm == a.label] for a in ARMS}
    fine = {r.seed: r.last for r in by[ARMS[0].label]}
    lines: list[str] = []
    for name, mine in by.items():
        share = t_interval([100 * r.last for r in mine])
        apart = [(100 * r.last, 100 * fine[r.seed]) for r in mine if r.seed in fine]
        delta = paired_interval([a for a, _ in apart], [b for _, b in apart])
        beside = "–" if name == ARMS[0].label else f"{delta.estimate:+.1f} ({delta.low:+.1f} to {delta.high:+.1f})"
        lines.append(
            f"| {name} | {mean(r.mismatch for r in mine):.2g} | {mean(r.bounded for r in mine):.2%} | "
            f"{sum(r.collapsed for r in mine)} of {len(mine)} | {share.estimate:.1f} ({share.low:.1f} to "
            f"{share.high:.1f}) | {beside} |"
        )
    return "\n".join([
        "# Rollouts from coarse weights", "",
        f"Regenerate with `python -m studies.precision`. The embedded policy on chained sums, {budget:,} decoded "
        f"tokens a run, {len(fine)} seeds, the rate and updates of the [regime](../howto/regimes.md) `fresh`. The "
        "engine's linear layers have integers of eight bits or fp8 with a scale for each channel, or integers of four "
        "bits with a scale for each 16 "
        "neighbours; training has the same, or the fine weights ([how](../howto/engines.md#coarse-weights)). "
        "Accuracy is held-out pass@1 at the end in points, of the weights that the engine has; in brackets "
        "95 % t intervals. A run has collapsed where the share of right rollouts over "
        f"{STEPS} steps falls below half of the first pass@1. Bounded: actions whose weight the correction truncated "
        "or masked.", "",
        "| arm | mismatch, nats per token | bounded | collapsed | accuracy | beside full, paired |",
        "|---|---:|---:|---:|---:|---:|", *lines, "",
        "The runs are short and the model is small: a collapse late in long rollouts, as Jet-RL and others report it, "
        "cannot show here.", "",
    ])  # fmt: skip


BOTH, ENGINE_ALONE = ARMS[3], ARMS[4]


def made(arm: Arm, seed: int, settings: PrecisionSettings) -> PrecisionRow:
    """An arm's run, trained or found."""
    torch.set_num_threads(1)
    on = regime("fresh").conditions(settings.budget, settings.items)
    rate = tuple(arms(["grpo"], calibrated("fresh").settings())[0].knobs)
    spec = Spec(replace(arm, knobs=(*arm.knobs, *rate)), seed, on)
    return row(arm.label, Shelf(settings.cache, TrainRunner()).make(spec, lambda *_: None))


def jet_rl(seed: int) -> Measured:
    """Held-out pass@1 after training with integers of four bits on both sides, or in the engine alone.

    What is counted is what rounding moves in the trainer's forward pass, where the baseline rounds nothing. Nothing is
    found again here: whoever repeats a seed trains it.
    """
    with tempfile.TemporaryDirectory() as folder:
        settings = PrecisionSettings(cache=Path(folder))
        ours, theirs = (made(arm, seed, settings) for arm in (BOTH, ENGINE_ALONE))
    return Measured(ours.last, theirs.last, acted={"weights rounded in training": moved(BOTH)})


def moved(arm: Arm) -> float:
    """Weights that the trainer's rounding moves before the first step."""
    how = cast(Precision, dict(arm.knobs)["train.train_precision"])
    if how == "full":
        return 0.0
    layers = linear_weights(load_model("nano").model).values()
    return sum(float((rounded(layer.weight, how) != layer.weight).float().sum()) for layer in layers)


def mismatch(seed: int, trainer: Precision) -> float:
    """Nats per token between what the engine samples with weights rounded to four bits and the trainer's log-probs."""
    torch.set_num_threads(1)
    loaded = load_model("nano")
    prompt = np.array(loaded.codec.encode(next(iter(load_task("arithmetic").items("train", seed))).prompt), np.int32)

    async def sampled() -> Sequence[Sample]:
        engine = LocalEngine(loaded, precision="int4", seed=seed)
        asked = (Request(prompt, Sampling(24, seed=100 * seed + k, ignore_eos=True)) for k in range(8))
        samples = await asyncio.gather(*(engine.submit(one) for one in asked))
        await engine.close()
        return samples

    model: Any = deepcopy(loaded.model)
    round_forward(model, trainer)
    found: list[float] = []
    for sample in asyncio.run(sampled()):
        ids = torch.tensor([[*prompt.tolist(), *sample.actions.tolist()]])
        with torch.no_grad():
            logp = torch.log_softmax(model(ids).logits[0].double(), -1)[len(prompt) - 1 : -1]
        mine = logp.gather(1, ids[0, len(prompt) :, None])[:, 0].numpy()
        found.append(float(np.abs(mine - sample.logp).mean()))
    return mean(found)


if __name__ == "__main__":
    raise SystemExit(run_study("precision", PrecisionSettings, main, __doc__))
