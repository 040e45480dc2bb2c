"""Places of this program that no sandbox opens by itself: what holds answers, and where results are written."""

from __future__ import annotations

from pathlib import Path

_places: set[Path] = set()


def hold_back(place: str | Path) -> None:
    """Keep a file or folder, and every folder above it, from what a sandbox opens without being asked."""
    _places.add(Path(place).expanduser().resolve())


def held_back() -> frozenset[Path]:
    """All of them."""
    return frozenset(_places)
