"""Verified answers by prompt, and those of the prompts most like another: examples for what is not solved yet."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rolltree.control.features import likeness
from rolltree.control.order import Prompt
from rolltree.tree.values import storable


@storable
@dataclass(slots=True)
class Corpus:
    """Verified right answers by prompt, the latest `most` of them."""

    most: int = 512
    solved: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Prompt's id → its text and the answer."""

    def add(self, uid: str, prompt: str, answer: str) -> None:
        """Remember a right answer."""
        self.solved.pop(uid, None)
        self.solved[uid] = [prompt, answer]
        while len(self.solved) > self.most:
            del self.solved[next(iter(self.solved))]

    def nearest(self, prompt: Prompt, count: int) -> list[list[str]]:
        """The most similar other prompts with their answers."""
        others = [pair for uid, pair in self.solved.items() if uid != prompt.uid]
        if not others:
            return []
        like = likeness([prompt.item.prompt], [text for text, _ in others])[0]
        return [others[i] for i in np.argsort(-like, kind="stable")[:count]]
