"""Which part of a recipe a difference could come from: two compositions held side by side."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from rolltree.compare.arms import Knobs
from rolltree.generate.strategy import SampleStrategy, TreeStrategy
from rolltree.recipe.recipe import Parts
from rolltree.rollout.widths import width_of

CLIPS = ("clip_low", "clip_high", "low", "high", "dual")
"""Knobs of objectives that bound a ratio; they are told apart from the rest of the objective."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_EMPTY = ("", "()", "{}", "None", "0")


def shapes_trees(strategy: TreeStrategy) -> bool:
    """Whether rollouts know of one another, so that a flat group of as many is another thing."""
    return not isinstance(strategy, SampleStrategy)


def pieces(parts: Parts) -> dict[str, str]:
    """A composition as named pieces of text, each of which may differ by itself."""
    objective, clip = _objective(parts.objective)
    out = {
        "strategy": type(parts.strategy).__name__,
        "knobs of the strategy": _knobs(parts.strategy),
        "width": str(width_of(parts.strategy) or "its own"),
        "credit": _text(parts.credit),
        "objective": objective,
        "clip": clip,
        "filter": _text(parts.filters),
        "shaping": _text(parts.shapers),
    }
    for name in ("averaging", "unit", "fixed_length", "multiplicity", "rounds", "prompts", "control", "recall",
                 "anchor", "schedule", "peers"):  # fmt: skip
        out[name] = _text(getattr(parts, name))
    return out


def apart(mine: Parts, base: Parts, ours: Knobs = (), theirs: Knobs = ()) -> dict[str, tuple[str, str]]:
    """The pieces in which two arms differ, each as (mine, the baseline's): their compositions, and of their knobs those
    of the trainer. Where a recipe is made of a number of updates, that goes before what the arm was told."""
    left, right = pieces(mine) | trainer(mine, ours), pieces(base) | trainer(base, theirs)
    if left["strategy"] != right["strategy"]:  # whose knobs are not those of the other
        left.pop("knobs of the strategy")
        right.pop("knobs of the strategy")
    pairs = {name: (left.get(name, ""), right.get(name, "")) for name in {**left, **right}}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def trainer(parts: Parts, knobs: Knobs) -> dict[str, str]:
    """What the trainer was told, by the whole names of its knobs."""
    told = {name: str(value) for name, value in knobs if name.startswith(("train.", "optim."))}
    return told | {f"optim.{name}": str(value) for name, value in parts.optim.items()}


def said(found: Mapping[str, tuple[str, str]]) -> str:
    """The differing pieces in one line: short ones with both values, long ones by name."""
    short = {name: pair for name, pair in found.items() if max(map(len, pair)) <= 24}
    words = [f"{name} {_or_none(a)} (baseline {_or_none(b)})" for name, (a, b) in short.items()]
    return "; ".join([*words, *(name for name in found if name not in short)]) or "nothing"


def _or_none(text: str) -> str:
    return "none" if text in _EMPTY else text


def _knobs(strategy: TreeStrategy) -> str:
    """What a strategy was told besides its width."""
    if not is_dataclass(strategy):
        return ""
    told = {f.name: getattr(strategy, f.name) for f in fields(strategy)}
    return ", ".join(f"{k} {_text(v)}" for k, v in told.items() if v != width_of(strategy))


def _objective(objective: Any) -> tuple[str, str]:
    if not is_dataclass(objective):
        return type(objective).__name__, ""
    knobs = {f.name: getattr(objective, f.name) for f in fields(objective)}
    clip = ", ".join(f"{k} {v}" for k, v in knobs.items() if k in CLIPS and isinstance(v, int | float))
    rest = ", ".join(f"{k}={v!r}" for k, v in knobs.items() if k not in CLIPS)
    return _ADDRESS.sub("", f"{type(objective).__name__}({rest})"), clip


def _text(part: Any) -> str:
    return _ADDRESS.sub("", repr(part))
