"""The folder of a run: what a stranger finds there, and who may write in it."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

import rolltree
from rolltree.metrics.log import read_metrics
from rolltree.task.sandbox.held_back import hold_back
from rolltree.training.config import TrainError
from rolltree.training.lock import LOCK, FolderLock
from rolltree.training.progress import TRACKERS
from rolltree.tree.store.atomic import new_file, set_partial
from rolltree.tree.store.values import read_json
from rolltree.visible import visible

CONFIG = "config.json"
SAVED = ": saved step-"
"""What the log says of every checkpoint."""
ACTED = "acted.json"
"""What a run that ended says of its recipe's mechanism."""
README_NAME = "README.md"
TITLE = "# A training run of Rolltree"
README = (
    TITLE
    + """

{title}

| file | what it is |
|---|---|
| `config.json` | every knob, the seeds, the versions of what ran and a digest of the source |
| `metrics.jsonl` | a line per step and evaluation (docs/metrics.md), `failures` and `warnings`; `kind` says which |
| `prompt.json` | the first prompt as the model sees it, token by token |
| `metrics.parquet` | the same as a table, once the run has ended |
| `forests/step=N/` | rollouts of a step with every decision (`rolltree.tree.store.parquet.load`, any Parquet reader) |
| `checkpoints/step-NNNNNN/` | a Hugging Face model folder plus `training.pt`, from which the run continues exactly |
| `findings.jsonl` | where the doctor watched: a line for every finding that appeared or went |
| `acted.json` | whether the recipe's mechanism acted, once the run has ended |
| `offending/` | only after a loss left all bounds: the batch that did it |
| `log.txt` | what was printed |

Leaves are accounted for in every line: `rollout/submitted` = `rollout/trained` + `rollout/kept` + `rollout/dropped` +
`rollout/running`.

Continue with the same command and `--resume`. Load the latest model with
`transformers.AutoModelForCausalLM.from_pretrained("checkpoints/step-NNNNNN")`, or, where adapters were trained on
adapters, with `rolltree.policy.load.load_model`, which follows them down to the whole model.
"""
)


class RunFolder:
    """An output folder held by this process until `close`."""

    def __init__(self, path: Path | str, *, resume: bool = False) -> None:
        self.path = Path(path)
        hold_back(path)
        used = (self.path / CONFIG).exists()
        if used and not resume:
            raise TrainError(f"{self.path} already holds a run; resume it (--resume) or choose another folder")
        if resume and not used:
            raise TrainError(f"{self.path} holds no run to resume; start one without --resume")
        if self.path.is_dir() and not used and self._strange():
            raise TrainError(f"{self.path} is not empty and holds no run; choose another folder")
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = FolderLock(self.path)
        if not resume and (self.path / CONFIG).exists():
            self._lock.release()
            raise TrainError(f"{self.path} was taken by another run just now; choose another folder")

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
        """Write config.json, which makes it the folder of a run, and README.md, unless they are there."""
        if not (self.path / CONFIG).exists():
            with new_file(self.path / CONFIG) as sink:
                json.dump({**config, "ran_on": surroundings()}, sink, indent=2, default=plain)
        if not (self.path / README_NAME).exists():
            with new_file(self.path / README_NAME) as sink:
                sink.write(README.format(title=visible(title)))

    def tell_acted(self, told: Mapping[str, Any]) -> None:
        """Write whether the recipe's mechanism acted; what a run said that goes on now is replaced."""
        with new_file(self.path / ACTED, overwrite=True) as sink:
            json.dump(told, sink, indent=2)

    def config(self) -> dict[str, Any]:
        """What config.json says."""
        try:
            told: Any = read_json((self.path / CONFIG).read_text(encoding="utf-8"))
        except ValueError:
            told = None
        known = cast("dict[str, Any]", told) if isinstance(told, dict) else {"train": None}
        if not isinstance(known.get("train", {}), dict):
            raise TrainError(f"{self.path / CONFIG} cannot be read; the run cannot be resumed")
        return known

    def check_beginning(self) -> None:
        """Refuse to begin again where checkpoints were saved and are gone: what was measured since would be lost."""
        if not self.metrics.is_file():
            return
        done = max((int(line["step"]) for line in read_metrics(self.metrics) if line.get("kind") == "train"), default=0)
        every = self.config().get("train", {}).get("checkpoint_every") or 0
        log = self.path / "log.txt"
        told = log.is_file() and SAVED in log.read_text(encoding="utf-8", errors="replace")
        if told or 0 < every < done:
            raise TrainError(
                f"{self.path} has {done} steps and their checkpoints are gone; put them back into {self.checkpoints}, "
                "or begin again at step 0 with fallback=True (--fallback), which drops those steps"
            )

    def close(self) -> None:
        """Let others use the folder."""
        self._lock.release()

    def _strange(self) -> list[Path]:
        """What lies in the folder besides what a run leaves that was killed before it had a configuration."""
        ours = {LOCK, README_NAME, *(set_partial(self.path / name).name for name in (README_NAME, CONFIG)), *TRACKERS}
        return [p for p in self.path.iterdir() if p.name not in ours or (p.name == README_NAME and not _ours(p))]


def _ours(readme: Path) -> bool:
    with readme.open("rb") as file:
        return file.read(len(TITLE)) == TITLE.encode()


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
