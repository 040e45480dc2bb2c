"""What a text says in the end, where nobody knows the right answer: what votes among answers compare."""

from __future__ import annotations

import re

BOXED = re.compile(r"\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")
NAMED = re.compile(r"(?:####|(?:final )?answer\s*(?:is|:|=))\s*(.+)", re.IGNORECASE)
NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?|[-+]?\.\d+")
LONGEST = 200
"""Characters of a text that is an answer as a whole."""


def final_answer(text: str) -> str | None:
    """In this order: the last \\boxed{…}, what follows the last "####" or "answer:", the last number, a short text.

    None where a text ends in no answer.
    """
    if boxed := BOXED.findall(text):
        return _normal(boxed[-1])
    if named := NAMED.findall(text):
        return _normal(named[-1])
    if numbers := NUMBER.findall(text):
        return _normal(numbers[-1])
    whole = text.strip()
    return whole if 0 < len(whole) <= LONGEST else None


def _normal(answer: str) -> str:
    """Without what surrounds it; a number as a number is written."""
    bare = answer.strip().lstrip("*$`\"' ").rstrip("*$`\"' .")
    found = NUMBER.fullmatch(bare)
    return f"{float(found[0].replace(',', '')):.12g}" if found else bare
