"""Fields of a body, checked: each refusal names the field, the value and what is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rolltree.engine.protocol import Sampling
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.session import Draw

Body = Mapping[str, Any]
MOST_ANSWERS = 16


def number(body: Body, name: str, default: float, least: float, most: float) -> float:
    """A number within bounds."""
    told = body.get(name)
    if told is None:
        return default
    # Compared, never converted: JSON may hold a whole number that no float is large enough for.
    if not isinstance(told, int | float) or isinstance(told, bool) or not least <= told <= most:
        raise GatewayError(f"{name} is {told!r}; give a number from {least:g} to {most:g}")
    return float(told)


def whole(body: Body, name: str, default: int, least: int, most: int) -> int:
    """A whole number within bounds."""
    told = body.get(name)
    if told is None:
        return default
    if not isinstance(told, int) or isinstance(told, bool) or not least <= told <= most:
        raise GatewayError(f"{name} is {told!r}; give a whole number from {least} to {most}")
    return told


def listed(told: Any, name: str) -> Sequence[Any]:
    """A list."""
    if not isinstance(told, list):
        raise GatewayError(f"{name} is no list")
    return cast(Sequence[Any], told)


def objects(told: Any, name: str) -> list[Mapping[str, Any]]:
    """A list of objects; nothing is an empty one."""
    found = [] if told is None else listed(told, name)
    for i, one in enumerate(found):
        if not isinstance(one, Mapping):
            raise GatewayError(f"{name}[{i}] is no object")
    return list(found)


def text(told: Any, name: str) -> str:
    """A text."""
    if not isinstance(told, str):
        raise GatewayError(f"{name} is no text")
    return told


def draw(body: Body, limit: int, *, stop: str = "stop", most: str = "max_tokens", top: int = 0) -> Draw:
    """How to sample, in the words all protocols share."""
    told = body.get(stop)
    stops = (told,) if isinstance(told, str) else tuple(listed(told, stop)) if told is not None else ()
    if len(stops) > 16 or not all(isinstance(one, str) and 0 < len(one) <= 256 for one in stops):
        raise GatewayError(f"{stop} takes at most 16 texts of 1 to 256 characters")
    seed = whole(body, "seed", -1, -(2**63), 2**63 - 1)
    sampling = Sampling(
        max_tokens=whole(body, most, limit, 1, 2**31 - 1),
        temperature=number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=number(body, "top_p", 1.0, 1e-6, 1.0),
        top_k=max(0, whole(body, "top_k", 0, -1, 2**31 - 1)),
        stop=stops,
        seed=None if body.get("seed") is None else seed % 2**63,
        ignore_eos=body.get("ignore_eos") is True,
    )
    return Draw(sampling, whole(body, "n", 1, 1, MOST_ANSWERS), top)
