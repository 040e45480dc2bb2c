"""Whether this checkout trains to the last digit what another one trains: weights and every number that both write.

    git worktree add /tmp/before d9b3e79
    python benchmarks/same_numbers.py /tmp/before [--recipes grpo dapo gspo] [--steps 3] [--json FILE]

Flat runs of one thread repeat exactly; trees and dialogues part by rounding, because batches depend on time. Times are
left out; names of older versions are read as today's. Exits with 1 where anything differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from rolltree.metrics.log import read_metrics

HERE = Path(__file__).parents[1]
FLAT = ("grpo", "dapo", "gspo", "cispo", "rloo", "dr_grpo")


def trained(checkout: Path, recipe: str, out: Path, steps: int, seed: int) -> None:
    """A short run of a checkout's own code."""
    words = [
        sys.executable, "-m", "rolltree", "train", recipe, "--task", "arithmetic", "--steps", str(steps), "--seed",
        str(seed), "--prompts", "8", "--eval-every", "0", "--threads", "1", "--out", str(out),
    ]  # fmt: skip
    around = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=checkout, env=around, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{recipe} in {checkout} ended with {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")


def weights(run: Path) -> str:
    """A name for the last checkpoint's weights."""
    state = load_file(sorted((run / "checkpoints").rglob("*.safetensors"))[-1])
    told = hashlib.sha256()
    for name in sorted(state):
        told.update(name.encode() + state[name].contiguous().numpy().tobytes())
    return told.hexdigest()[:16]


def numbers(run: Path) -> list[dict[str, Any]]:
    """Lines of the run's metrics without times."""
    lines = read_metrics(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if not name.startswith("time/")} for line in lines]


def compared(before: Path, after: Path) -> dict[str, Any]:
    """What is equal and what is not."""
    equal, differ = 0, list[str]()
    for old, new in zip(numbers(before), numbers(after), strict=True):
        for name in sorted(old.keys() & new.keys()):
            if old[name] == new[name]:
                equal += 1
            else:
                differ.append(f"{name}: {old[name]} and {new[name]}")
    one, other = weights(before), weights(after)
    return {"numbers_equal": equal, "differ": differ, "weights": [one, other], "same": one == other and not differ}


def main() -> int:
    """All recipes, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("before", type=Path, help="folder of the other checkout")
    parser.add_argument("--recipes", nargs="+", default=list(FLAT))
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--json", type=Path, help="write what came out there")
    asked = parser.parse_args()
    if not (asked.before / "rolltree").is_dir():
        parser.error(f"{asked.before} is no checkout of Rolltree; make one with: git worktree add FOLDER COMMIT")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for recipe in asked.recipes:
            runs = [Path(folder) / f"{recipe}-{name}" for name in ("before", "after")]
            for checkout, run in zip((asked.before.resolve(), HERE), runs, strict=True):
                trained(checkout, recipe, run, asked.steps, asked.seed)
            found[recipe] = told = compared(*runs)
            said = "the same" if told["same"] else f"differs: {'; '.join(told['differ'][:3]) or 'weights'}"
            print(f"{recipe}: {said}; {told['numbers_equal']} numbers equal, weights {' '.join(told['weights'])}")
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(told["same"] for told in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
