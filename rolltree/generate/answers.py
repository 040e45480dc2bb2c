"""What a task gives, checked before it is believed: its items, its verdicts and its replies.

An item that cannot be asked is refused; an answer that breaks the task's contract fails its rollout, and says how.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping
from typing import Any, cast

import numpy as np

from rolltree.engine.protocol import Engine
from rolltree.engine.texts import actions_of
from rolltree.errors import RolltreeError
from rolltree.task.protocol import Item, Reply, Verdict


class ItemError(RolltreeError, ValueError):
    """An item that cannot be asked: names it and the way out."""


class AnswerError(TypeError):
    """A task returned what its contract does not know; names the call, the field and the value."""


def check_item(item: Item, engine: Engine, peers: Mapping[str, Engine] | None = None, *, answered: bool = True) -> None:
    """Refuse an item without an answer (where it is to be `answered`: to train on it), with a prompt that fills the
    context, or that a peer reads as other tokens.
    """
    if answered and item.answer is None:
        raise ItemError(f"item {item.id!r} has no answer, so nothing can be verified; give it one or leave it out")
    context = engine.capabilities.max_context
    tokens = len(actions_of(engine, item.prompt, f"the prompt of item {item.id!r}"))
    if tokens >= context:
        raise ItemError(
            f"the prompt of item {item.id!r} has {tokens} tokens and leaves no room in a context of {context}; "
            "shorten it or choose a model with a longer context"
        )
    for name, peer in (peers or {}).items():
        _check_peer(item, engine, name, peer)


def _check_peer(item: Item, engine: Engine, name: str, peer: Engine) -> None:
    ours, theirs = engine.codec, peer.codec
    same = [getattr(ours, name, None) == getattr(theirs, name, None) for name in ("vocab_size", "eos_id", "kind")]
    if not all(same) or not np.array_equal(ours.encode(item.prompt), theirs.encode(item.prompt)):
        raise ItemError(
            f"the peer {name!r} reads item {item.id!r} as other tokens than the run's engine, so they cannot write in "
            "one tree; choose models that share a tokenizer"
        )


async def verdict_of(call: Awaitable[object]) -> Verdict:
    """A verdict with a score and parts that are numbers."""
    told = await call
    if not isinstance(told, Verdict):
        raise AnswerError(f"verify returned {_shown(told)} instead of a Verdict")
    _number("verify", "score", told.score)
    _numbers("verify", told.parts)
    if told.answer is not None:
        _text("verify", "answer", told.answer)
    _text("verify", "why", told.why)
    return told


async def reply_of(call: Awaitable[object]) -> Reply:
    """A reply whose text (or other observation) can be written down and whose rewards are numbers."""
    told = await call
    if not isinstance(told, Reply):
        raise AnswerError(f"step returned {_shown(told)} instead of a Reply")
    if told.text is None or isinstance(told.text, str | bytes | int | float):  # other observations are the channel's
        _text("step", "text", told.text, whole=True)
    _number("step", "reward", told.reward)
    _numbers("step", told.parts)
    if told.state_key is not None:
        _text("step", "state_key", told.state_key)
    return told


def start_of(told: object) -> tuple[Any, str | None]:
    """A first state and its key."""
    pair = cast("tuple[Any, ...]", told)
    if not (isinstance(told, tuple) and len(pair) == 2):
        raise AnswerError(f"start returned {_shown(told)} instead of a state and its key")
    if pair[1] is not None:
        _text("start", "state_key", pair[1])
    return pair[0], pair[1]


def _number(call: str, name: str, value: object) -> None:
    try:
        if not isinstance(value, str | bytes) and math.isfinite(cast("float", value)):
            return
    except (TypeError, ValueError, OverflowError):
        pass
    raise AnswerError(f"{call} returned {name}={_shown(value)}, which is no finite number")


def _numbers(call: str, parts: object) -> None:
    if not isinstance(parts, Mapping):
        raise AnswerError(f"{call} returned parts={_shown(parts)}, which is no mapping of names to numbers")
    for name, value in cast("Mapping[object, object]", parts).items():
        _text(call, "a part's name", name)
        _number(call, f"parts[{name!r}]", value)


def _text(call: str, name: str, value: object, *, whole: bool = False) -> None:
    if not isinstance(value, str):
        raise AnswerError(f"{call} returned {name}={_shown(value)}, which is no text")
    try:
        if whole:
            value.encode()
    except UnicodeEncodeError as error:
        raise AnswerError(
            f"{call} returned {name} with half a character (U+{ord(value[error.start]):04X} at {error.start}), "
            "which no tokenizer can read"
        ) from None


def _shown(value: object) -> str:
    said = ascii(value)
    return said if len(said) <= 80 else f"{said[:77]}..."
