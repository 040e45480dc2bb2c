"""Fields of a body, checked: each refusal names the field, the value and what is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from rolltree.engine.protocol import Sampling
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.session import Draw
from rolltree.visible import shortened

Body = Mapping[str, Any]
MOST_ANSWERS = 16
MESSAGES, TOOLS = 5000, 1000
"""Most of each in a call."""


def number(body: Body, name: str, default: float, least: float, most: float) -> float:
    """A number within bounds."""
    told = body.get(name)
    if told is None:
        return default
    # Compared, never converted: JSON may hold a whole number that no float is large enough for.
    if not isinstance(told, int | float) or isinstance(told, bool) or not least <= told <= most:
        raise GatewayError(f"{name} is {_shown(told)}; give a number from {least:g} to {most:g}", param=name)
    return float(told)


def whole(body: Body, name: str, default: int, least: int, most: int) -> int:
    """A whole number within bounds."""
    told = body.get(name)
    if told is None:
        return default
    if not isinstance(told, int) or isinstance(told, bool) or not least <= told <= most:
        raise GatewayError(f"{name} is {_shown(told)}; give a whole number from {least} to {most}", param=name)
    return told


def listed(told: Any, name: str) -> Sequence[Any]:
    """A list."""
    if not isinstance(told, list):
        raise GatewayError(f"{name} is no list", param=name)
    return cast(Sequence[Any], told)


def flag(body: Body, name: str) -> bool:
    """Yes or no; no where it is left out."""
    told = body.get(name)
    if told is not None and not isinstance(told, bool):
        raise GatewayError(f"{name} is {_shown(told)}; give true or false", param=name)
    return bool(told)


def objects(told: Any, name: str, most: int = MESSAGES) -> list[Mapping[str, Any]]:
    """A list of objects; nothing is an empty one."""
    found = [] if told is None else listed(told, name)
    if len(found) > most:
        raise GatewayError(f"{name} has {len(found):,} entries, and at most {most:,} are read", param=name)
    for i, one in enumerate(found):
        if not isinstance(one, Mapping):
            raise GatewayError(f"{name}[{i}] is no object", param=name)
    return list(found)


def tool(name: Any, described: Any, parameters: Any, where: str) -> Mapping[str, Any]:
    """A tool as templates take it."""
    if not isinstance(name, str) or not 0 < len(name) <= 256 or not name.isprintable():
        raise GatewayError(f"{where} has the name {_shown(name)}; give 1 to 256 printable characters", param="tools")
    told: dict[str, Any] = {"name": name}
    if described is not None:
        told["description"] = text(described, f"{where}.description")
    if parameters is not None and not isinstance(parameters, Mapping):
        raise GatewayError(f"the parameters of {where} are {_shown(parameters)}; give a JSON schema", param="tools")
    return {"type": "function", "function": {**told, "parameters": parameters if parameters is not None else {}}}


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
        raise GatewayError(f"{stop} takes at most 16 texts of 1 to 256 characters", param=stop)
    options: Any = body.get("stream_options")
    if options is not None and not isinstance(options, Mapping):
        raise GatewayError(f"stream_options is {_shown(options)}; give an object", param="stream_options")
    flag(body, "stream")
    seed = whole(body, "seed", -1, -(2**63), 2**63 - 1)
    sampling = Sampling(
        max_tokens=whole(body, most, limit, 1, 2**31 - 1),
        temperature=number(body, "temperature", 1.0, 0.0, 2.0),
        top_p=number(body, "top_p", 1.0, 1e-6, 1.0),
        top_k=max(0, whole(body, "top_k", 0, -1, 2**31 - 1)),
        stop=stops,
        seed=None if body.get("seed") is None else seed % 2**63,
        ignore_eos=flag(body, "ignore_eos"),
    )
    return Draw(sampling, whole(body, "n", 1, 1, MOST_ANSWERS), top)


def _shown(told: Any) -> str:
    return shortened(repr(told), 80)
