"""Rewards of several parts: named components, gates between them, one number and every part on record.

Structured output (RL-Struct, arXiv:2512.00319), slides judged by whether the brief can be read back (SlideForge),
counter-misinformation replies (MisinfoCorrect) and rebuttals (arXiv:2601.15715) are rows of one table here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from rolltree.errors import RolltreeError
from rolltree.task.protocol import Verdict


class RewardError(RolltreeError, ValueError):
    """A part of a reward is missing or not a number; names it."""


@dataclass(frozen=True, slots=True)
class RewardPart:
    """One component: its weight, and optionally the part that must reach `least` before this one counts."""

    name: str
    weight: float = 1.0
    gate: str | None = None
    least: float = 1.0


@dataclass(frozen=True, slots=True)
class Rewards:
    """Weighted parts, summed or averaged; a part whose gate is shut counts 0.

    A part that was not measured is an error, never a zero: a crashed judge must not look like a bad answer.
    """

    parts: tuple[RewardPart, ...]
    combine: Literal["sum", "mean"] = "sum"

    def __post_init__(self) -> None:
        names = [p.name for p in self.parts]
        for part in self.parts:
            if part.gate is not None and part.gate not in names:
                raise RewardError(f"part {part.name!r} is gated by {part.gate!r}, which is not a part: {names}")
        if len(set(names)) < len(names):
            raise RewardError(f"two parts share a name: {names}")

    def verdict(self, measured: Mapping[str, float], answer: str | None = None) -> Verdict:
        """The reward of one rollout from its measured parts."""
        total = 0.0
        for part in self.parts:
            value = measured.get(part.name, math.nan)
            if not math.isfinite(value):
                raise RewardError(f"part {part.name!r} is {value}; measure it, or fail the rollout")
            if part.gate is None or measured.get(part.gate, math.nan) >= part.least:
                total += part.weight * value
        if self.combine == "mean":
            total /= sum(p.weight for p in self.parts)
        return Verdict(total, {p.name: float(measured[p.name]) for p in self.parts}, answer)


STRUCTURED = Rewards(
    (RewardPart("structure"), RewardPart("format"), RewardPart("content", gate="validity"), RewardPart("validity"))
)
"""RL-Struct's four levels; the weights are not published (1 each is reconstructed), the gate is its option."""

RECORD = Rewards((RewardPart("keys"), RewardPart("types"), RewardPart("values", gate="parses"), RewardPart("parses")))
"""RL-Struct's levels as the nano task `records` measures them: exact keys, shares of right types and right values, and
whether the text is one JSON object and nothing else."""

SLIDES = Rewards(
    (
        RewardPart("rules", 1.0),
        RewardPart("render", 2.0),
        RewardPart("content", 2.0),
        RewardPart("look_html", 1.5),
        RewardPart("look_png", 1.5),
        RewardPart("brief", 2.0),
    ),
    "mean",
)
"""SlideForge's six parts with its released weights."""

REPLY = Rewards(
    (
        RewardPart("politeness"),
        RewardPart("refutation"),
        RewardPart("evidence"),
        RewardPart("fluency", 10.0),
        RewardPart("relevance", 0.1),
    )
)
"""MisinfoCorrect's five classifiers with its released weights, per rollout (released code averages the batch)."""

REBUTTAL = Rewards((RewardPart("format"), RewardPart("thinking"), RewardPart("response"), RewardPart("diversity")))
"""RebuttalAgent's four parts; weights are not published (1 each is reconstructed)."""


def delta(before: float, after: float, bonus: float = 0.0) -> float:
    """A step's reward as the change of a quality measure, plus a small bonus for the action (SlideForge)."""
    return after - before + bonus


def json_parts(text: str, keys: Sequence[str]) -> dict[str, float]:
    """RL-Struct's checks that need no task: structure, format and validity of a JSON object with these keys.

    structure is the share of required keys present, over required and invented keys; format is 1 if nothing but the
    object stands in the text; validity is 1 if that object parses.
    """
    stripped = text.strip()
    inner = re.search(r"\{.*\}", text, re.DOTALL)
    parsed: Any = None
    if inner is not None:
        try:
            parsed = json.loads(inner.group())
        except (ValueError, RecursionError):  # numbers and nestings that Python does not read
            parsed = None
    found = set(cast(dict[str, Any], parsed)) if isinstance(parsed, dict) else set[str]()
    wanted = set(keys)
    union = wanted | found
    structure = len(wanted & found) / len(union) if union else float(isinstance(parsed, dict))
    alone = inner is not None and inner.group() == stripped
    return {"structure": structure, "format": float(alone), "validity": float(isinstance(parsed, dict))}


def brief_recovered(brief: Mapping[str, Any], guess: Mapping[str, Any]) -> float:
    """How much of a brief {topic, audience, num_slides, key_themes} was read back from the deck alone (SlideForge).

    0.40 topic word recall + 0.25 audience (1 equal, 0.7 contained, 0.4 · overlap) + 0.15 ratio of slide counts + 0.20
    min(1.5 · share of topic words in the guessed themes, 1).
    """
    topic = _words(brief["topic"])
    recall = len(topic & _words(guess.get("topic", ""))) / max(len(topic), 1)
    mine, theirs = str(brief["audience"]).lower().strip(), str(guess.get("audience", "")).lower().strip()
    if mine == theirs:
        audience = 1.0
    elif theirs and (mine in theirs or theirs in mine):
        audience = 0.7
    else:
        audience = 0.4 * len(_words(mine) & _words(theirs)) / max(len(_words(mine)), 1)
    counts = sorted((float(brief["num_slides"]), float(guess.get("num_slides", 0))))
    slides = counts[0] / counts[1] if counts[0] > 0 else 0.0
    themes = _words(" ".join(map(str, guess.get("key_themes", ()))))
    covered = min(1.5 * len(topic & themes) / max(len(topic), 1), 1.0)
    return 0.40 * recall + 0.25 * audience + 0.15 * slides + 0.20 * covered


def _words(text: object) -> set[str]:
    return set(re.findall(r"\w+", str(text).lower()))
