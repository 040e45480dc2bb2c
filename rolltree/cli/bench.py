"""`rolltree bench`: speed on this machine, as ratios measured side by side in one run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import rolltree
from rolltree.cli.common import emit, first_name
from rolltree.cli.helptext import Option, columns
from rolltree.errors import RolltreeError, unknown

BENCHMARKS = {
    "engine": "local engine against transformers generate: uniform, ragged, forked, trees",
    "training": "packed trees against a flat padded batch; a GRPO step against TRL's trainer",
    "step_parts": "where the processor time of a GRPO step goes: decoding, learning, products and the rest",
    "packings": "the same trees packed by Rolltree, by TRL's TreeRow and by prefix-grouper; what is possible at most",
    "serving": "everything about decoding in docs/speed.md, case by case, and the page's tables written again",
    "guesses": "the local engine guessing tokens ahead against one token at a time, on the same samples",
    "hand": "scheduling alone: node operations a second with an engine that computes nothing",
    "overlap": "training under a schedule against synchronous training, with a long tail of lengths",
    "soak": "asynchronous training while everything breaks: nothing lost, no deadlock, memory flat",
    "team": "small operations beside the idle threads of another thread, and without them",
    "ranks": "what a trainer rank holds at most, by number of ranks",
    "cluster": "a pool of Ray actors against the engine itself, on the same requests",
    "scheduler": "the asynchronous scheduler alone: operations a second, by requests in flight",
    "tree": "a million nodes built, saved, loaded, queried, walked; memory per token",
    "credit": "every credit on 1,000 trees of 64 leaves of 256 tokens",
    "objective": "every objective against a plain clipped surrogate",
    "viewing": "pages of the viewer in Chromium: large against small, and against bare pages of the same file",
    "gpu": "a card: numerics against the processor, speed, whole steps, learning",
}
ABOUT = """usage: rolltree bench [NAME] [OPTIONS of that benchmark]

Measure speed on this machine. Ratios come from repeated runs side by side;
min, median and max are printed with the number of threads. Without a name,
engine, training and hand run (about twelve minutes on two cores).
"""


def run(arguments: Sequence[str]) -> int:
    """Run the named benchmarks one after the other."""
    if {"-h", "--help"} & set(arguments) and first_name(arguments)[0] is None:
        rows = (Option(name, about) for name, about in BENCHMARKS.items())
        print("\n".join([ABOUT, *columns(tuple(rows), 80)]))
        print("\nrolltree bench NAME --help shows its options.")
        return 0
    if list(arguments) == ["--json"]:
        emit(BENCHMARKS)
        return 0
    name, rest = first_name(arguments)
    if name is not None and name not in BENCHMARKS:
        raise unknown("benchmark", name, BENCHMARKS, "rolltree bench --help lists them")
    folder = Path(rolltree.__file__).resolve().parent.parent / "benchmarks"
    if not folder.is_dir():
        raise RolltreeError(
            f"the benchmarks are not installed with the package ({folder} is missing); clone the source"
        )
    for chosen in [name] if name else ["engine", "training", "hand"]:
        print(f"{chosen}: {BENCHMARKS[chosen]}\n", flush=True)
        place = folder / chosen if (folder / chosen).is_dir() else folder / f"{chosen}.py"
        done = subprocess.run([sys.executable, str(place), *rest], check=False)
        if done.returncode:
            return done.returncode
    return 0
