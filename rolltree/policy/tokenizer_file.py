"""Where a run's tokenizer lies: in its newest checkpoint, else in the folder of the model that it names."""

from __future__ import annotations

import os
from pathlib import Path

from rolltree.errors import RolltreeError
from rolltree.policy.models import MODELS, model_folder

NAME = "tokenizer.json"


def saved_tokenizers(run: Path) -> list[Path]:
    """Those of a run folder's checkpoints, newest first; links that lead out of the folder are left out."""
    found = sorted(run.glob(f"checkpoints/step-*/{NAME}"), reverse=True)
    return [path for path in found if path.resolve().is_relative_to(run.resolve())]


def model_tokenizer(name: str) -> Path:
    """That of a model by name or folder, whether it is there or not; nothing is downloaded for a look at a run."""
    folder = Path(os.path.expanduser(name))  # an unknown user is no error here
    if folder.is_dir() or name not in MODELS:
        return folder / NAME
    try:
        return model_folder(name) / NAME
    except RolltreeError:
        return folder / NAME
