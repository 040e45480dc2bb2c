"""What a node of a search is worth: judges by name."""

from __future__ import annotations

from rolltree.generate.judge.head import load_head
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge, JudgeError
from rolltree.generate.scorers import Verified


def judge_of(worth: str) -> Judge:
    """The judge that recipes call so: path, step, least (confidence), verifier, or head:FILE (a trained step head)."""
    if worth in ("path", "step", "least"):
        return Confidence(worth)
    if worth == "verifier":
        return Verified(Confidence())
    if worth.startswith("head:"):
        return load_head(worth.removeprefix("head:"))
    raise JudgeError(f"worth={worth!r} is none of path, step, least, verifier and head:FILE")
