"""The tokens of a path, one by one: text, colour, and what is known of each for the one that is pointed at."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rolltree.analysis.text import Pieces
from rolltree.tree import Node
from rolltree.tree.node import TRAINER_ENTROPY, TRAINER_LOGP
from rolltree.tree.shape import Floats
from rolltree.tree.store.values import read_json
from rolltree.view.colours import Colouring, Scale, author, scale
from rolltree.view.rows import Record

SHOWN = 6000
"""Most tokens of one path on a page; longer paths keep both ends."""


@dataclass(frozen=True)
class TokenRun:
    """The tokens of one node on the path, as lists for the page."""

    node: int
    title: str
    role: str
    forced: bool
    texts: list[str]
    shades: list[int]
    facts: dict[str, list[float | None]]
    """Quantity → number per token; only what was recorded."""
    top: list[list[tuple[str, float]]]
    """Alternatives per token, most likely first; empty where not recorded."""
    start: int
    """Actions of the path before the first shown token."""
    state: str
    """The environment's state after the node, as stored; "" where there is none."""
    same: list[bool] = field(default_factory=list[bool])
    """Which tokens another path has too; empty where nothing is compared."""


@dataclass(frozen=True)
class Strip:
    """The tokens of a path with their scale."""

    runs: tuple[TokenRun, ...]
    scale: Scale
    tokens: int
    hidden: int
    """Tokens left out in the middle."""
    note: str
    """Why a colouring shows nothing, or what it means here; "" when there is nothing to say."""


def strip(
    path: Sequence[Record],
    pieces: Pieces,
    colouring: Colouring,
    *,
    newest: int,
    rewards: Floats,
    used: Scale | None = None,
) -> Strip:
    """Lay a path out; `newest` is the newest weight version and `rewards` the mean outcome below each node of it.

    `used` is a scale to share with other paths; the path's own range unless given.
    """
    values = [quantity(r, colouring, newest, float(v)) for r, v in zip(path, rewards, strict=True)]
    flat = np.concatenate(values) if values else np.zeros(0)
    used = used or scale(colouring, flat)
    total, at = len(flat), 0
    cut = (SHOWN // 2, total - SHOWN // 2) if total > SHOWN else (total, total)
    runs: list[TokenRun] = []
    for record, value in zip(path, values, strict=True):
        keep = np.arange(at, at + len(value))
        keep = np.flatnonzero((keep < cut[0]) | (keep >= cut[1]))
        runs.append(_run(record, pieces, used.index(value), keep, newest, at))
        at += len(value)
    return Strip(tuple(runs), used, total, max(0, cut[1] - cut[0]), _note(path, colouring, flat))


def quantity(record: Record, colouring: Colouring, newest: int, reward: float) -> Floats:
    """A number per token for its colour; NaN where there is none."""
    n = record.node
    size = len(n)
    nothing = np.full(size, np.nan)
    if colouring in ("reward", "value"):
        return np.full(size, reward)
    if colouring == "author":
        return np.full(size, float(author(n.role, n.actor)))
    if colouring == "entropy":
        return _entropy(record)
    if colouring == "advantage":
        return _advantage(n)
    if colouring == "staleness":
        return nothing if n.version is None else np.where(n.version < 0, np.nan, newest - n.version.astype(np.float64))
    return _mismatch(record)


def _mismatch(record: Record) -> Floats:
    n = record.node
    trainer = _trainer(record)
    if trainer is not None and n.logp is not None:
        return n.logp - trainer
    return (
        np.full(len(n), np.nan)
        if n.logp is None or n.sampling_logprob is None
        else (n.sampling_logprob - n.logp).astype(np.float64)
    )


def _entropy(record: Record) -> Floats:
    """The engine's entropies; the trainer's where it reported none."""
    if record.node.entropy is not None:
        return record.node.entropy.astype(np.float64)
    read = _noted(record, TRAINER_ENTROPY)
    return np.full(len(record.node), np.nan) if read is None else read


def _trainer(record: Record) -> Floats | None:
    return _noted(record, TRAINER_LOGP)


def _noted(record: Record, name: str) -> Floats | None:
    given = record.notes.get(name)
    if not isinstance(given, list) or len(given) != len(record.node):
        return None
    return np.array([np.nan if v is None else v for v in given], np.float64)


def _advantage(n: Node) -> Floats:
    if n.gain is None or n.loss is None or n.weight is None:
        return np.full(len(n), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        return (n.gain.astype(np.float64) + n.loss) / n.weight


def _run(record: Record, pieces: Pieces, shades: Any, keep: Any, newest: int, start: int) -> TokenRun:
    n = record.node
    texts = pieces.pieces(n.actions)
    known: dict[str, Any] = {
        "log p": n.logp,
        "log q": n.sampling_logprob,
        "log p (trainer)": _trainer(record),
        "entropy": _entropy(record),
        "gain": n.gain,
        "loss": n.loss,
        "weight": n.weight,
        "version": n.version,
    }
    advantage = _advantage(n)
    if np.isfinite(advantage).any():
        known["advantage"] = advantage
    if n.keep is not None:
        known["loss_mask"] = n.keep.astype(np.int64)
    given = {name: array for name, array in known.items() if array is not None and np.isfinite(array).any()}
    facts = {name: [_number(array[i]) for i in keep] for name, array in given.items()}
    top: list[list[tuple[str, float]]] = []
    if n.top is not None:
        distinct = np.unique(n.top.ids)
        words = dict(zip(distinct.tolist(), pieces.alone(distinct), strict=True))
        top = [
            [(words[int(t)], round(float(p), 4)) for t, p in zip(n.top.ids[i], n.top.logp[i], strict=True)]
            for i in keep
        ]
    first = start + (int(keep[0]) if len(keep) else 0)
    return TokenRun(
        n.id,
        title(n),
        n.role,
        n.forced,
        [texts[i] for i in keep],
        [int(shades[i]) for i in keep],
        facts,
        top,
        first,
        _pretty(record.state),
    )


def title(n: Node) -> str:
    """Who wrote a node, how it came to be and how it ended, in a few words."""
    who = n.role if n.actor in (n.role, "policy", "task") else f"{n.role} ({n.actor})"
    born = "" if n.birth == "root" else n.birth
    end = " ".join(w for w in (n.status if n.status not in ("done", "open") else "", n.finish or "") if w)
    granted = f"step reward {n.scores['step_reward']:g}" if "step_reward" in n.scores else ""
    key = f"state {n.state_key}" if n.state_key and n.role == "env" else ""
    return " · ".join(w for w in (f"node {n.id}", who, born, "forced" if n.forced else "", end, granted, key) if w)


def _note(path: Sequence[Record], colouring: Colouring, values: Floats) -> str:
    if colouring == "mismatch" and any(_trainer(r) is not None for r in path):
        return "mismatch: the engine's log-prob minus the trainer's"
    if np.isfinite(values).any():
        if colouring == "mismatch":
            return (
                "mismatch: log q under the sampling distribution minus log p under the policy, both as the engine "
                "reported them"
            )
        return ""
    return {
        "reward": "no leaf below this path has an outcome",
        "value": "nothing on this path was given a value",
        "entropy": "no entropy was recorded on this path; training notes it of what it reads",
        "mismatch": "no pair of log-probs was recorded on this path",
        "advantage": "nothing on this path was given credit",
        "staleness": "no weight versions were recorded on this path",
        "author": "",
    }[colouring]


def _pretty(text: str) -> str:
    """Stored JSON, indented; other text as it is."""
    try:
        return json.dumps(read_json(text), indent=1, ensure_ascii=False) if text else ""
    except ValueError:
        return text


def _number(value: Any) -> float | None:
    number = float(value)
    return round(number, 5) if np.isfinite(number) else None
