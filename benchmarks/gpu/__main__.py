"""Everything that is worth knowing of Rolltree on a card, in one command and at most eight minutes.

    make gpu            or: PYTHONPATH=. python benchmarks/gpu [--device cuda:1] [--only packed] [--seconds 480]

Needs torch, transformers, numpy and pyarrow alone. Writes one JSON and, with --page, a page of the documentation. With
--toy it runs everything at sizes of a processor's seconds, which says nothing but that it runs. Exits with 1 where the
card does not compute what the processor computes.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
import transformers
from numerics import numerics
from page import page
from speed import engines, matrix_peak, packed
from steps import learning, steps
from work import Bench

from rolltree.errors import RolltreeError
from rolltree.policy.device import DTYPES, place

PARTS = ("numerics", "learning", "packed", "engine", "steps")


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
    for part in [p for p in PARTS if p in asked.only]:
        if part == "numerics":
            numerics(bench)
        elif part == "learning":
            bench.attempt("learning", lambda: learning(bench), least=60)
        elif part == "packed":
            for shape in bench.shapes:
                bench.attempt(f"packed {shape.name}", lambda s=shape: packed(bench, s, peak), least=40)
        elif part == "engine":
            for shape in bench.shapes[:2]:
                bench.attempt(f"engine {shape.name}", lambda s=shape: engines(bench, s), least=40)
        else:
            steps(bench, bench.shapes[0])
    data = {"machine": machine(bench, peak), "rows": bench.rows, "left_out": bench.left_out}
    if asked.json:
        asked.json.write_text(json.dumps(data, indent=1) + "\n")
    if asked.page:
        asked.page.write_text(page(data))
    wrong = [row["what"] for row in bench.rows.get("numerics", []) if not row["agrees"]]
    if wrong:
        print(f"the card does not compute what the processor computes: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


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
