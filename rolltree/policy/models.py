"""Names of models and where their folders are."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from rolltree.errors import ModelError, did_you_mean
from rolltree.policy.hub import from_hub

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model Rolltree knows by name."""

    name: str
    about: str
    packaged: str = ""
    """Its folder where it ships inside the package; others are fetched into the cache by `get`."""
    get: Callable[[Path], None] | None = None
    """Makes the model's folder at the given path (called with a fresh temporary folder)."""


def _smollm2(folder: Path) -> None:
    from rolltree.policy.smollm2 import get_smollm2  # loads torch, which a list of names needs none of

    get_smollm2(folder)


MODELS: dict[str, ModelEntry] = {
    entry.name: entry
    for entry in (
        ModelEntry("nano", "character policy of about a million parameters for the nano tasks", "policy/nano"),
        ModelEntry("digits", "flow model of 8×8 digits, for policies that write no tokens", "latents/digits"),
        ModelEntry("smollm2-135m", "SmolLM2-135M-Instruct, the smallest real language model", get=_smollm2),
    )
}
OWN_KINDS: Mapping[str, str] = {"rolltree_flow": "rolltree.latents.flow:load_flow"}
"""The `model_type` of a folder that transformers does not read -> what reads it, imported when a folder asks for it."""


def own_loader(folder: Path) -> Callable[[Path], Any] | None:
    """What reads a folder of a kind of our own, which brings its own policy and engine; None for a language model."""
    try:
        told: Any = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    kind = told.get("model_type") if isinstance(told, dict) else None
    return resolve_name(OWN_KINDS[kind]) if isinstance(kind, str) and kind in OWN_KINDS else None


def home() -> Path:
    """Where downloaded models are kept: $ROLLTREE_HOME, by default ~/.cache/rolltree."""
    return Path(os.environ.get("ROLLTREE_HOME") or Path.home() / ".cache" / "rolltree")


def present(name: str) -> bool:
    """Whether a registered model is ready to load."""
    return (_place(MODELS[name]) / "config.json").is_file()


def get_model(name: str) -> Path:
    """Fetch a registered model into the cache unless it is there; the folder appears whole or not at all."""
    entry = MODELS.get(name)
    if entry is None:
        raise _unknown(name)
    place = _place(entry)
    if (place / "config.json").is_file():
        return place
    if entry.get is None:
        raise ModelError(f"Model {name!r} should ship in {place} and does not; reinstall rolltree.")
    place.parent.mkdir(parents=True, exist_ok=True)
    draft = place.with_name(f".{place.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        entry.get(draft)
        shutil.rmtree(place, ignore_errors=True)
        draft.rename(place)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return place


def model_folder(name: str) -> Path:
    """Folder of a registered name (which must be present), of a path, or of a hub id (downloaded if need be)."""
    if name in MODELS:
        place = _place(MODELS[name])
        if not place.is_dir():
            way = "reinstall rolltree" if MODELS[name].packaged else f"run `rolltree models get {name}`"
            raise ModelError(f"Model {name!r} is not at {place}; {way}.")
        return place
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if name.count("/") == 1 and not name.startswith((".", "/", "~")):
        return from_hub(name)
    raise _unknown(name)


def _place(entry: ModelEntry) -> Path:
    return ROOT / entry.packaged if entry.packaged else home() / "models" / entry.name


def _unknown(name: str) -> ModelError:
    way = did_you_mean(name, MODELS) or f"known: {', '.join(MODELS)}; or give a folder or an owner/name id"
    return ModelError(f"there is no model {name!r}: {way}")
