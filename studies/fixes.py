"""Do the doctor's suggested fixes help? `python -m studies.fixes` makes faults, applies fixes and measures both.

Every case trains the embedded policy twice from each seed, for as many steps from as many rollouts: once with the
fault, once with a fix that the doctor offers for it. What counts is whether the finding stands at the end, and whether
more held-out answers are right. It writes docs/measured/fixes.json and fixes.md; finished runs are kept in the JSON, so
an interrupted call goes on. Eight minutes on one core.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import tyro

from rolltree.compare.trace import write_json
from rolltree.doctor import detectors, examine
from rolltree.doctor.finding import Fix
from rolltree.metrics.registry import value_in
from rolltree.recipe.registry import load_recipe
from rolltree.task.registry import load_task
from rolltree.tree.store.values import read_json

STEPS, PROMPTS, GROUP, LAST = 16, 8, 8, 10
HELD_OUT, SAMPLES = 64, 4


@dataclass(frozen=True)
class Setup:
    """How a run differs from plain GRPO with the trainer's defaults."""

    recipe: str = "grpo"
    knobs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The recipe's."""
    train: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The trainer's."""


@dataclass(frozen=True)
class Case:
    """A fault, and a fix of its finding."""

    finding: str
    task: str
    level: int
    said: str
    """The fault in words."""
    fault: Setup
    fix: str
    """Name of the fix as the detector has it."""
    mended: Setup
    done: str
    """The fix in words."""

    def offered(self) -> Fix:
        """The fix among those the detector offers."""
        return next(f for f in detectors()[self.finding].fixes if f.name == self.fix)


CASES = (
    Case("truncated_answers", "countdown", 2, "a limit of 10 tokens", Setup(train={"max_tokens": 10}),
         "max_tokens", Setup(), "the task's own limit"),
    Case("duplicates", "countdown", 2, "temperature 0.1", Setup(train={"temperature": 0.1}),
         "temperature", Setup(), "temperature 1"),
    Case("zero_variance", "countdown", 4, "a task that is solved once in a hundred", Setup(),
         "dapo", Setup("dapo"), "dapo, which asks other prompts instead"),
    Case("all_wrong_prompts", "countdown", 4, "a task that is solved once in a hundred", Setup(),
         "grpo.group", Setup(knobs={"group": 32}, train={"prompts": 2}), "groups of 32 for a quarter of the prompts"),
    Case("heavy_weights", "arithmetic", 2, "temperature 1.6", Setup(train={"temperature": 1.6}),
         "temperature", Setup(), "temperature 1"),
)  # fmt: skip


@dataclass(frozen=True)
class FixesSettings:
    """What is measured, and where it goes."""

    only: tuple[str, ...] = ()
    """Findings to measure; all of them when left out."""
    seeds: int = 3
    """Runs of each side."""
    out: Path = Path("docs/measured")
    """Where fixes.json and fixes.md are written."""
    page_only: bool = False
    """Write the page anew from the numbers there are."""


def measured(case: Case, setup: Setup, seed: int) -> dict[str, float]:
    """One run: the finding's number over the last steps, whether it stands, and held-out pass@1 before and after."""
    from rolltree.training.start import train

    knobs: dict[str, Any] = {"steps": STEPS, "prompts": PROMPTS, **setup.train}
    with tempfile.TemporaryDirectory() as scratch:
        recipe = load_recipe(setup.recipe, **{"group": GROUP, **setup.knobs})
        result = train(
            recipe, "nano", load_task(case.task, level=case.level),
            out=Path(scratch) / "run", seed=seed, quiet=True, forests_every=0, checkpoint_every=0,
            eval_every=knobs["steps"], eval_items=HELD_OUT, eval_samples=SAMPLES, **knobs,
        )  # fmt: skip
        report = examine(result.path, only=[case.finding])
    name = detectors()[case.finding].reads[0]
    lines = [line for line in result.metrics if line["kind"] == "train"]
    seen = [float(v) for line in lines if isinstance(v := value_in(line, name), int | float)]
    first = next(line for line in result.metrics if line["kind"] == "eval")
    return {
        "number": sum(seen[-LAST:]) / len(seen[-LAST:]), "first": sum(seen[:LAST]) / len(seen[:LAST]),
        "stands": float(bool(report.standing)),
        "before": first["eval/pass@1"], "after": result.last("eval")["eval/pass@1"],
        "decoded": float(lines[-1]["budget/decoded_total"]),
    }  # fmt: skip


def main(settings: FixesSettings) -> None:
    """Measure what is missing and write the page."""
    torch.set_num_threads(1)
    store = settings.out / "fixes.json"
    kept: dict[str, Any] = read_json(store.read_text()) if store.exists() else {}
    for case in CASES:
        if settings.page_only or (settings.only and case.finding not in settings.only):
            continue
        case.offered()
        for side, setup in (("fault", case.fault), ("fix", case.mended)):
            for seed in range(1, settings.seeds + 1):
                key = f"{case.finding}/{side}/{seed}"
                if key not in kept:
                    kept[key] = measured(case, setup, seed)
                    write_json(store, kept)
                    print(key, json.dumps(kept[key]), flush=True)
    (settings.out / "fixes.md").write_text(page(kept), encoding="utf-8")


def sides(kept: Mapping[str, Any], case: Case) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """The runs with the fault and with the fix, seed by seed."""
    seeds = sorted(int(k.rpartition("/")[2]) for k in kept if k.startswith(f"{case.finding}/fix/"))
    return tuple([kept[f"{case.finding}/{side}/{seed}"] for seed in seeds] for side in ("fault", "fix"))  # pyright: ignore[reportReturnType]


def verdict(fault: list[dict[str, float]], fix: list[dict[str, float]]) -> str:
    """What the fix did: to the finding, and to held-out answers, where all seeds agree."""
    stood, stands = (sum(run["stands"] for run in side) for side in (fault, fix))
    gains = [b["after"] - a["after"] for a, b in zip(fault, fix, strict=True)]
    finding = "gone" if stands == 0 < stood else "fewer" if stands < stood else "still there"
    answers = (
        "more answers right" if min(gains) > 0 else "fewer answers right" if max(gains) < 0
        else "no clear change of right answers"
    )  # fmt: skip
    return f"{finding}; {answers}"


def page(kept: Mapping[str, Any]) -> str:
    """The page of the numbers."""
    rows: list[str] = []
    for case in CASES:
        fault, fix = sides(kept, case)
        if not fault:
            continue
        number = [sum(r["number"] for r in side) / len(side) for side in (fault, fix)]
        stands = [f"{sum(r['stands'] for r in side):.0f} of {len(side)}" for side in (fault, fix)]
        gains = sorted(100 * (b["after"] - a["after"]) for a, b in zip(fault, fix, strict=True))
        after = [100 * sum(r["after"] for r in side) / len(side) for side in (fault, fix)]
        times = sum(r["decoded"] for r in fix) / sum(r["decoded"] for r in fault)
        metric = detectors()[case.finding].reads[0]
        rows.append(
            f"| [{case.finding}](../doctor.md#{case.finding}) | {case.said} ({case.task} {case.level}) "
            f"| {case.offered().name}: {case.done} | `{metric}` {number[0]:.2f} → {number[1]:.2f} "
            f"| {stands[0]} → {stands[1]} | {after[0]:.0f} → {after[1]:.0f} ({gains[0]:+.0f} to {gains[-1]:+.0f}) "
            f"| {times:.1f} | {len(fix)} | {verdict(fault, fix)} |"
        )  # fmt: skip
    return (
        HEAD.format(steps=STEPS, rollouts=PROMPTS * GROUP, last=LAST, items=HELD_OUT, samples=SAMPLES)
        + "\n".join(rows)
        + "\n"
    )


HEAD = """\
# Do the doctor's fixes help?

Written by `python -m studies.fixes` from `fixes.json`. Each case makes a fault on purpose, trains the embedded policy
with it, and trains it again with one of the fixes that the [doctor](../howto/doctor.md) offers for the finding: {steps}
steps of {rollouts} rollouts, the same seeds on both sides. The number is the mean over
the last {last} steps; *stands* counts the runs at whose end the finding stands; pass@1 is on {items} held-out items,
{samples} samples each under the run's own limit and temperature, with the smallest and the largest difference over the
seeds. *Tokens* says how many times as many were decoded with the fix. A fix that does not help is in the table like any
other.

| finding | fault | fix | number, before → after | stands | held-out pass@1, % | tokens | seeds | what it did |
|---|---|---|---|---|---|---|---|---|
"""


if __name__ == "__main__":
    main(tyro.cli(FixesSettings))
