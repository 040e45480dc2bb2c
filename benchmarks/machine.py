"""What a baseline was measured on, and the file it goes to."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


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
