"""Fetches SmolLM2-135M."""

from pathlib import Path


def get_smollm2(folder: Path) -> None:
    """x"""
