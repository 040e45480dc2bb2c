"""What a baseline was measured on and by which clock, and the file it goes to."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
import transformers

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Clock:
    """Seconds: of the wall, or of the processor, all threads together, on a machine that other programs use."""

    kind: Literal["wall", "cpu"] = "wall"

    def __call__(self) -> float:
        return time.perf_counter() if self.kind == "wall" else time.process_time()


clock = Clock()
"""What all benchmarks of this process measure by."""


def machine() -> dict[str, Any]:
    """Processor, load and versions."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": [round(x, 1) for x in os.getloadavg()],
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "clock": clock.kind,
        "measured": datetime.now(UTC).date().isoformat(),
    }


def save(path: Path | None, rows: Sequence[DataclassInstance]) -> None:
    """Write rows under the machine they were measured on; None = nowhere."""
    if path is not None:
        path.write_text(json.dumps({"machine": machine(), "rows": [asdict(r) for r in rows]}, indent=1) + "\n")


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor()
