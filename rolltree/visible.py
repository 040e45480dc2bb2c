"""Texts of others in a terminal: what would do something there is shown as what it is, and what is long is cut."""

from __future__ import annotations

import re

_ACTS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Control characters but line breaks and tabs, marks that turn the direction of writing, and halves of characters."""


def visible(text: str) -> str:
    """The text with control pictures for control characters, and codes for what would act or cannot be written."""
    return _ACTS.sub(_shown, text)


LONG = 600
"""Characters of what somebody's code says that are shown."""


def shortened(text: str, most: int = LONG) -> str:
    """The text, or its beginning and its end with the count of what is left out between them."""
    if len(text) <= most:
        return text
    end = most // 4
    return f"{text[: most - end]} … ({len(text) - most:,} characters left out) … {text[-end:]}"


def _shown(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"
