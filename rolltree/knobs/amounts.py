"""Amounts as people write them: 300k, 1.5M, 20000."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

from rolltree.errors import RolltreeError

_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
_WRITTEN = re.compile(r"([0-9]*\.?[0-9]+(?:e[0-9]{1,2})?)\s*([kmg]?)")


class AmountError(RolltreeError):
    """A text that is no amount: names it and how one is written."""


def amount(text: str | float, what: str = "budget") -> float:
    """An amount above 0; `what` is its name where it is none."""
    found = _WRITTEN.fullmatch(str(text).lower().strip())
    if not found or float(found[1]) <= 0:
        raise AmountError(f"cannot read the {what} {text!r}: write a number above 0, as in 300k, 1.5M or 20000")
    return float(found[1]) * _SIZES[found[2]]


def whole(text: str) -> int:
    """A count of tokens. A plain integer is taken as it stands, so that its own knob says what is too little."""
    try:
        return int(text)
    except ValueError:
        count = amount(text, "number of tokens")
    if round(count) != count:
        raise AmountError(f"{text!r} is {count:g} tokens, no whole number; write one, as in 300k, 1.5M or 20000")
    return round(count)


def _whole(words: list[str]) -> int:
    return whole(words[0])


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _read() -> Any:
    """How the command line reads a count of tokens; None where nothing reads command lines, as training needs none."""
    try:
        from tyro.constructors import PrimitiveConstructorSpec
    except ImportError:
        return None
    return PrimitiveConstructorSpec[int](
        nargs=1, metavar="TOKENS", instance_from_str=_whole, is_instance=_is_whole, str_from_instance=lambda n: [str(n)]
    )


TOKENS = _read()
if TYPE_CHECKING:
    Tokens = int
else:
    Tokens = Annotated[int, TOKENS]
    """A knob that counts tokens; on the command line 96k is 96000."""
