"""What a judge's text says: strict readers, for which a text that says two things says nothing."""

from __future__ import annotations

import re

NOT_SAID = float("nan")


def number_in(text: str, least: float, most: float) -> float:
    """The one number of a text, as a share of the scale; NaN where there is none, several, or one off the scale."""
    found = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.]*\d)", text)
    if len(set(found)) != 1:
        return NOT_SAID
    value = float(found[0])
    return (value - least) / (most - least) if least <= value <= most else NOT_SAID


def word_in(text: str, words: tuple[str, ...]) -> int | None:
    """Which one of some words stands in a text; None where none does or several do. Longer words hide shorter ones."""
    order = sorted(words, key=len, reverse=True)
    found = set(re.findall("|".join(rf"(?<!\w){re.escape(word)}(?!\w)" for word in order), text))
    return words.index(found.pop()) if len(found) == 1 else None
