"""The folder of a run: what a stranger finds there, and who may write in it."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import psutil

import rolltree
from rolltree.train.config import TrainError
from rolltree.tree.atomic import new_file
from rolltree.visible import visible

LOCK = "in-use.json"
README = """\
# A training run of Rolltree

{title}

| file | what it is |
|---|---|
| `config.json` | every knob, the seeds, the versions of what ran and a digest of the source |
| `metrics.jsonl` | one line per step and per evaluation (docs/metrics.md); `kind` says which (`failures`: what broke) |
| `prompt.json` | the first prompt as the model sees it, token by token |
| `metrics.parquet` | the same as a table, once the run has ended |
| `forests/step=N/` | rollouts of a step with every decision: `rolltree.tree.parquet.load`, or any Parquet reader |
| `checkpoints/step-NNNNNN/` | a Hugging Face model folder plus `training.pt`, from which the run continues exactly |
| `findings.jsonl` | where the doctor watched: a line for every finding that appeared or went |
| `offending/` | only after a loss left all bounds: the batch that did it |
| `log.txt` | what was printed |

Leaves are accounted for in every line: `rollout/submitted` = `rollout/trained` + `rollout/kept` + `rollout/dropped` +
`rollout/running`.

Continue with the same command and `--resume`. Load the latest model with
`transformers.AutoModelForCausalLM.from_pretrained("checkpoints/step-NNNNNN")`.
"""


class RunFolder:
    """An output folder held by this process until `close`."""

    def __init__(self, path: Path | str, *, resume: bool = False) -> None:
        self.path = Path(path)
        used = (self.path / "config.json").exists()
        if used and not resume:
            raise TrainError(f"{self.path} already holds a run; resume it (--resume) or choose another folder")
        if resume and not used:
            raise TrainError(f"{self.path} holds no run to resume; start one without --resume")
        if self.path.is_dir() and not used and any(p.name != LOCK for p in self.path.iterdir()):
            raise TrainError(f"{self.path} is not empty and holds no run; choose another folder")
        self.path.mkdir(parents=True, exist_ok=True)
        self._take()

    @property
    def metrics(self) -> Path:
        """The metrics file."""
        return self.path / "metrics.jsonl"

    @property
    def forests(self) -> Path:
        """Where rollouts are saved."""
        return self.path / "forests"

    @property
    def checkpoints(self) -> Path:
        """Where checkpoints are saved."""
        return self.path / "checkpoints"

    def describe(self, title: str, config: Mapping[str, Any]) -> None:
        """Write README.md and config.json."""
        with new_file(self.path / "README.md", overwrite=True) as sink:
            sink.write(README.format(title=visible(title)))
        with new_file(self.path / "config.json", overwrite=True) as sink:
            json.dump({**config, "ran_on": surroundings()}, sink, indent=2, default=plain)

    def config(self) -> dict[str, Any]:
        """What config.json says."""
        try:
            return cast(dict[str, Any], json.loads((self.path / "config.json").read_text()))
        except ValueError:
            raise TrainError(f"{self.path / 'config.json'} cannot be read; the run cannot be resumed") from None

    def close(self) -> None:
        """Let others use the folder."""
        (self.path / LOCK).unlink(missing_ok=True)

    def _take(self) -> None:
        lock = self.path / LOCK
        mine = json.dumps({"pid": os.getpid(), "started": psutil.Process().create_time(), "host": platform.node()})
        for _ in range(2):
            try:
                handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                holder = _holder(lock)
                if holder:
                    raise TrainError(
                        f"{self.path} is in use by {holder}; wait for it, stop it, or choose another folder"
                    ) from None
                lock.unlink(missing_ok=True)
                continue
            with os.fdopen(handle, "w") as sink:
                sink.write(mine)
            return
        raise TrainError(f"{self.path} was taken by another process just now; choose another folder")


def _holder(lock: Path) -> str:
    """Who holds a lock; "" where its process is gone (killed, or the machine was restarted)."""
    try:
        told: dict[str, Any] = json.loads(lock.read_text())
        pid, started, host = int(told["pid"]), float(told["started"]), str(told["host"])
    except (ValueError, KeyError, OSError):
        return ""
    if host != platform.node():
        return f"process {pid} on {host} (remove {lock} if that run is over)"
    try:
        alive = abs(psutil.Process(pid).create_time() - started) < 1
    except psutil.NoSuchProcess:
        alive = False
    return f"process {pid}" if alive else ""


def surroundings() -> dict[str, Any]:
    """Versions, machine and a digest of this package's source."""
    import torch

    packages = ("rolltree", "torch", "transformers", "numpy", "pyarrow", "peft")
    return {
        "versions": {name: found for name in packages if (found := _version(name))},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "source": source_digest(),
    }


def source_digest() -> str:
    """Digest of all Python files of the package: two runs with the same one ran the same code."""
    root = Path(rolltree.__file__).parent
    digest = blake2b(digest_size=16)
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def plain(value: Any) -> Any:
    """A JSON form of knobs: dataclasses by field, sets sorted, anything else by its repr."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__, **asdict(value)}
    if isinstance(value, (set, frozenset)):
        return sorted(cast(set[Any], value), key=str)
    # Where something lies in memory is no knob, and another in every process.
    return str(value) if isinstance(value, Path) else re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
