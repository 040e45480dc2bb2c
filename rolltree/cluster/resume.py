"""Going on with a request whose engine is gone, from the tokens that had arrived.

They are the truth: some were shown, all have their log-probs and versions, and none is made twice. The rest is asked
for as a request of its own, arranged so that it ends where and draws what the first one would have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

import numpy as np

from rolltree.engine.protocol import Codec, LogitsHook, Request, stop_text
from rolltree.tree.node import Array, Finish


@dataclass(frozen=True, slots=True)
class Begun:
    """A hook that sees the tokens made before the interruption as this request's own."""

    hook: LogitsHook
    made: tuple[int, ...]

    def __call__(self, generated: Sequence[int], logits: Any) -> Any:
        """As the hook says of all tokens so far."""
        return self.hook([*self.made, *generated], logits)


def continuation(request: Request, made: Array, *, offset: bool) -> Request:
    """What is left to ask for once `made` exists.

    An engine with the feature "offset" draws exactly what is missing; any other gets a fresh stream, under which the
    distribution of the whole sample is the same but its tokens are not.
    """
    if not len(made):
        return request
    s = request.sampling
    hook = None if s.hook is None else Begun(s.hook, tuple(int(t) for t in made))
    seed = s.seed if offset or s.seed is None else _fresh(s.seed, len(made))
    draws = s.offset + len(made) if offset else 0
    rest = replace(s, max_tokens=s.max_tokens - len(made), hook=hook, seed=seed, offset=draws)
    return replace(request, prefix=np.append(request.prefix, made), sampling=rest)


def ending(request: Request, codec: Codec, made: Array, max_context: int) -> tuple[Finish, str] | None:
    """How a sample with these tokens has ended, and the stop string that fired; None where it goes on.

    The engine may be gone after the last token arrived and before word that it was the last.
    """
    s = request.sampling
    if not len(made):
        return None
    last = int(made[-1])
    fired = _first(s.stop, stop_text(codec, made, s.stop)) if s.stop else ""
    if last == codec.eos_id and not s.ignore_eos and not fired:
        return "eos", ""
    if fired or last in s.stop_ids:
        return "stop", fired
    if len(made) >= s.max_tokens or len(request.prefix) + len(made) >= max_context:
        return "length", ""
    return None


def straddling(stops: Sequence[str], codec: Codec, made: Array, boundary: int, seen: int) -> tuple[int, str] | None:
    """The first token, at or after `seen`, with which a stop string begun before the boundary is complete.

    Returns how many tokens stand then, and the string. The engine that continues cannot see what came before.
    """
    longest = max(map(len, stops), default=0)
    if longest < 2 or not boundary:
        return None
    for n in range(max(seen, boundary) + 1, len(made) + 1):
        if fired := _first(stops, stop_text(codec, made[:n], stops)):
            return n, fired
        if len(stop_text(codec, made[boundary:n], stops)) >= longest:
            return None
    return None


def _first(stops: Sequence[str], text: str) -> str:
    return next((stop for stop in stops if stop in text), "")


def _fresh(seed: int, made: int) -> int:
    return int.from_bytes(blake2b(f"{seed} after {made}".encode(), digest_size=8).digest()) >> 1
