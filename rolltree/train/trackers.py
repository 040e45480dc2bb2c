"""Trackers that a run's numbers go to beside its own file: TensorBoard, wandb, trackio."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rolltree.metrics.log import Tracker
from rolltree.train.config import TrainError

TRACKERS = {"tensorboard": "trackers", "wandb": "wandb", "trackio": "trackers"}
"""Trackers by name, with the extra that brings each."""


def open_trackers(names: tuple[str, ...], folder: Path, config: Mapping[str, Any]) -> tuple[Tracker, ...]:
    """The trackers asked for; one that is unknown or not installed is refused in one sentence."""
    return tuple(_open(name, folder, config) for name in names)


def _open(name: str, folder: Path, config: Mapping[str, Any]) -> Tracker:
    if name not in TRACKERS:
        raise TrainError(f"no tracker {name!r}; there are {', '.join(TRACKERS)}")
    try:
        return _TensorBoard(folder) if name == "tensorboard" else _Logged(name, folder, config)
    except ImportError:
        raise TrainError(f"the tracker {name} is not installed; install rolltree[{TRACKERS[name]}]") from None


class _TensorBoard:
    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class _Logged:
    """wandb, and trackio, which has its interface."""

    def __init__(self, name: str, folder: Path, config: Mapping[str, Any]) -> None:
        import importlib

        module: Any = importlib.import_module(name)
        options: dict[str, Any] = {"dir": str(folder)} if name == "wandb" else {}
        self._module = module
        module.init(project="rolltree", name=folder.name, config=json.loads(json.dumps(config, default=str)), **options)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        self._module.log(dict(numbers), step=step)

    def close(self) -> None:
        self._module.finish()
