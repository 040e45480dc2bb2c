"""Everything that is worth knowing of Rolltree on a card, in one command and at most eight minutes.

    make gpu            or: PYTHONPATH=. python benchmarks/gpu [--device cuda:1] [--only packed] [--seconds 480]

Needs torch, transformers, numpy and pyarrow alone. Writes one JSON, after every row, and, with --page, a page of the
documentation. With --only, rows of the other parts stay as the JSON has them. With --toy it runs everything at sizes of
a processor's seconds, which says nothing but that it runs. Exits with 1 where the card does not compute what the
processor computes.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers
from numerics import numerics, sampled
from page import page
from speed import engines, matrix_peak, packed
from steps import learning, steps
from work import Bench, Shape

from rolltree.errors import RolltreeError
from rolltree.policy.device import DTYPES, place

PARTS = ("numerics", "sampled", "learning", "packed", "engine", "steps")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto", choices=["auto", *DTYPES])
    parser.add_argument("--toy", action="store_true", help="tiny sizes, on any device")
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--seconds", type=float, default=460.0, help="begin nothing after so many seconds")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", type=Path)
    asked = parser.parse_args()
    where = place(asked.device, asked.dtype)
    if where.device.type == "cpu" and not asked.toy:
        raise RolltreeError("there is no GPU here; run it where one is, or with --toy to see that it runs")
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    bench = Bench(where.device, where.dtype, asked.toy, asked.seconds)
    peak = matrix_peak(bench)
    kept = earlier(asked.json, asked.only)

    def write() -> None:
        rows = {part: (bench.rows if part in asked.only else kept["rows"]).get(part, []) for part in PARTS}
        rows = {part: told for part, told in rows.items() if told}
        about = machine(bench, peak)
        about["seconds"] += kept["seconds"]
        data = {"machine": about, "rows": rows, "left_out": kept["left_out"] + bench.left_out}
        if asked.json:
            asked.json.write_text(json.dumps(data, indent=1) + "\n")
        if asked.page:
            asked.page.write_text(page(data))

    bench.after = write
    for part, work in plan(bench, peak):
        if part in asked.only:
            work()
    write()
    wrong = [row["what"] for part in ("numerics", "sampled") for row in bench.rows.get(part, []) if not row["agrees"]]
    if wrong:
        print(f"the card does not compute what the processor computes: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


def plan(bench: Bench, peak: float) -> list[tuple[str, Callable[[], None]]]:
    """What is measured, the shortest answers first, for where the time is short."""
    shapes = bench.shapes

    def rows(shape: Shape) -> None:
        bench.attempt(f"packed {shape.name}", lambda: packed(bench, shape, peak), least=40)

    def sampling(shape: Shape) -> None:
        bench.attempt(f"engine {shape.name}", lambda: engines(bench, shape), least=40)

    order: list[tuple[str, Callable[[], None]]] = [
        ("numerics", lambda: numerics(bench)),
        ("sampled", lambda: sampled(bench)),
        ("learning", lambda: learning(bench)),
        ("engine", lambda: sampling(shapes[0])),
        ("packed", lambda: rows(shapes[0])),
        ("steps", lambda: steps(bench, shapes[0])),
    ]
    order += [("packed", lambda s=shape: rows(s)) for shape in shapes[1:]]
    return [*order, ("engine", lambda: sampling(shapes[1]))]


def earlier(path: Path | None, only: list[str]) -> dict[str, Any]:
    """Rows of the parts that are not measured now, where the file has them."""
    if path is None or not path.is_file() or set(only) == set(PARTS):
        return {"rows": {}, "left_out": [], "seconds": 0.0}
    told = json.loads(path.read_text())
    return {
        "rows": told["rows"],
        "seconds": told["machine"]["seconds"],
        "left_out": [line for line in told["left_out"] if line.split()[0] not in only],
    }


def machine(bench: Bench, peak: float) -> dict[str, Any]:
    """What it was measured on."""
    card = torch.cuda.get_device_name(bench.device) if bench.device.type == "cuda" else str(bench.device)
    return {
        "device": card, "dtype": str(bench.dtype).removeprefix("torch."), "matrix_peak": peak,
        "torch": torch.__version__, "transformers": transformers.__version__, "python": platform.python_version(),
        "measured": datetime.now(UTC).date().isoformat(), "seconds": time.perf_counter() - bench.began,
    }  # fmt: skip


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RolltreeError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
