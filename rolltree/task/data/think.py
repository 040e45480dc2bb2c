"""Think tags: what a model thinks stands between them, and its answer behind them."""

from __future__ import annotations

from dataclasses import dataclass

from rolltree.task.items import TaskError


@dataclass(frozen=True, slots=True)
class Think:
    """A pair of tags; empty ones mean that the whole text is the answer."""

    opens: str = "<think>"
    closes: str = "</think>"

    def answer(self, text: str, prompt: str = "") -> str:
        """What stands behind the last closing tag; "" where thinking was begun, here or before, and not ended."""
        if not self.closes:
            return text
        before, closed, after = text.rpartition(self.closes)
        if closed:
            return after
        begun = self.opens in text or (prompt.rpartition(self.opens)[2].strip() == "" and self.opens in prompt)
        return "" if begun else before + after

    def well_formed(self, text: str, prompt: str = "") -> bool:
        """Whether a text is one block of thought, from its beginning, and then an answer."""
        if not self.closes:
            return bool(text.strip())
        inside = text.strip()
        if self.opens in prompt and not prompt.rpartition(self.opens)[2].strip():
            inside = self.opens + inside
        thought, closed, answer = inside.partition(self.closes)
        rest = thought.removeprefix(self.opens)
        once = self.opens not in rest and self.opens not in answer and self.closes not in answer
        return thought.startswith(self.opens) and bool(closed) and once and bool(answer.strip())


def think_tags(told: str) -> Think:
    """`auto` (`<think>…</think>`), `off`, or an opening and a closing tag with a comma between them."""
    if told == "auto":
        return Think()
    if told == "off":
        return Think("", "")
    opens, comma, closes = told.partition(",")
    if not (opens.strip() and comma and closes.strip()):
        raise TaskError(f"--think {told} is no pair of tags; write auto, off, or both with a comma: '<think>,</think>'")
    return Think(opens.strip(), closes.strip())
