"""All attacks. A module of this folder that has some names them in `ATTACKS`."""

from __future__ import annotations

import importlib

from tests.attack.frame import Attack

MODULES = (
    "engine", "kills", "models", "inputs", "returns", "runs", "strangers", "escapes", "agents", "viewing", "gateway",
    "serving", "clusters", "full", "own",
)  # fmt: skip


def attacks() -> dict[str, Attack]:
    """Attacks by name."""
    found = [each for module in MODULES for each in importlib.import_module(f"tests.attack.{module}").ATTACKS]
    return {each.name: each for each in found}
