"""Does a real chat model learn on a laptop? `python -m studies.chat.learn`.

SmolLM2-135M-Instruct on a file of sums in its own chat template, with two rewards: the form of the answer, and the
answer. Every run is one `rolltree train` command. Finished runs are kept, and one that was stopped goes on, so the
call may be repeated; `--publish` writes the page of what stands without starting anything.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rolltree.metrics.log import read_metrics
from studies.chat.page import Curve, Point, read, write
from studies.command import run_study

DATA = "sums.jsonl"
SYSTEM = "Answer with one equation and nothing else, like 4 + 5 = 9"
COMMON = (
    "--task", DATA, "--policy", "smollm2-135m", "--system", SYSTEM,
    "--reward", "examples/chat/rewards.py:equation:1.0", "--reward", "number:0.5", "--max-tokens", "16",
    "--prompts", "4", "--dtype", "float32", "--eval-items", "46", "--eval-samples", "2", "--threads", "1",
)  # fmt: skip
RECIPES: Mapping[str, tuple[str, ...]] = {
    "grpo": ("--group", "8"),
    "treepo": ("--leaves", "8", "--segment", "4", "--control", "uniform"),
}
WAYS: Mapping[str, tuple[str, ...]] = {"LoRA": ("--lora", "8", "--lr", "1e-3"), "all weights": ("--lr", "5e-5")}
PARTS = {"equation": "eval/part/equation", "number": "eval/part/number"}


@dataclass(frozen=True)
class ChatSettings:
    """How much is trained, and where the result goes."""

    seeds: int = 3
    """Seeds of each recipe and way, from 0 on. The knobs were chosen on seed 100."""
    steps: int = 12
    """Training steps of a run."""
    eval_every: int = 4
    """Steps between evaluations on all held-out items; a run that is stopped goes on from the last."""
    runs: Path = Path("runs/chat")
    """Folder of the runs."""
    out: Path = Path("docs/measured")
    """Folder of the page, its figure and its numbers."""
    again: bool = False
    """Make every run anew, also those whose numbers stand beside the page."""
    publish: bool = False
    """Write the page of the runs that are finished, and start none."""


def main(settings: ChatSettings) -> None:
    """Make every run that is not there yet, one after the other, and write the page. A run is there where its folder
    is, or where its numbers stand beside the page."""
    if not settings.publish:
        subprocess.run([sys.executable, "examples/chat/make_sums.py", DATA], check=True)
    stored = () if settings.again else read(settings.out, settings.steps)
    known = {(c.recipe, c.way, c.seed): c for c in stored}
    curves: list[Curve] = []
    for seed in range(settings.seeds):
        for way in WAYS:
            for recipe in RECIPES:
                place = settings.runs / f"{recipe}-{way.replace(' ', '-')}-{seed}"
                stands = known.get((recipe, way, seed))
                if stands is None and not settings.publish and not finished(place, settings.steps):
                    told = [*command(recipe, way, seed, settings), "--out", str(place)]
                    if any(place.glob("checkpoints/step-*")):
                        told.append("--resume")
                    else:
                        shutil.rmtree(place, ignore_errors=True)  # stopped before there was anything to go on from
                    subprocess.run([sys.executable, "-m", "rolltree", *told], check=True)
                if finished(place, settings.steps):
                    if not settings.publish:  # who only reads touches no run, which may still be saving
                        shutil.rmtree(place / "checkpoints", ignore_errors=True)  # a gigabyte and a half each
                    curves.append(Curve(recipe, way, seed, tuple(points(place))))
                elif stands is not None:
                    curves.append(stands)
    commands = [command(recipe, way, 0, settings) for way in WAYS for recipe in RECIPES]
    write(settings.out, curves, commands, settings.seeds)


def command(recipe: str, way: str, seed: int, settings: ChatSettings) -> list[str]:
    """The words behind `rolltree` that make a run, but for its folder."""
    return [
        "train", recipe, *COMMON, *RECIPES[recipe], *WAYS[way], "--steps", str(settings.steps),
        "--eval-every", str(settings.eval_every), "--checkpoint-every", str(settings.eval_every),
        "--keep-checkpoints", "1", "--seed", str(seed),
    ]  # fmt: skip


def finished(place: Path, steps: int) -> bool:
    """Whether the run in this folder has made its last evaluation."""
    path = place / "metrics.jsonl"
    return path.is_file() and any(line["kind"] == "eval" and line["step"] == steps for line in read_metrics(path))


def points(place: Path) -> Sequence[Point]:
    """A run's evaluations, and the processor and wall seconds until each had ended."""
    out: list[Point] = []
    processor = seconds = 0.0
    for line in read_metrics(place / "metrics.jsonl"):
        if line["kind"] not in ("train", "eval"):
            continue
        processor += line["time/processor"]
        seconds += line["time/evaluate"] if line["kind"] == "eval" else sum(
            value for key, value in line.items() if key in LAPS
        )  # fmt: skip
        if line["kind"] == "eval":
            out.append(Point(line["step"], line[PARTS["equation"]], line[PARTS["number"]], processor, seconds))
    return out


LAPS = frozenset({"time/grow", "time/credit", "time/learn", "time/stop", "time/publish"})
"""What the wall time of a training step is made of."""


if __name__ == "__main__":
    raise SystemExit(run_study("chat.learn", ChatSettings, main, __doc__))
