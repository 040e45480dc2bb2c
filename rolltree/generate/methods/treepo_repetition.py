"""Paths that have begun to repeat themselves: the first of TreePO's finish tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rolltree.generate.hand import Hand
from rolltree.tree import Node


def repeats(text: str, window: int, times: int) -> bool:
    """Whether some run of `window` characters stands in the text at least `times` times, overlaps included."""
    seen = Counter(text[i : i + window] for i in range(len(text) - window + 1))
    return max(seen.values(), default=0) >= times


@dataclass(frozen=True, slots=True)
class EndRepeating:
    """Ends live paths whose last run repeats itself (TreePO, arXiv 2508.17445); they are verified as they stand.

    The paper's window is 32 characters, seen 8 times in a segment of 512 tokens.
    """

    window: int = 32
    times: int = 8

    async def __call__(self, hand: Hand, live: Sequence[Node]) -> Sequence[Node]:
        """Close what repeats and return the others."""
        kept: list[Node] = []
        for node in live:
            if node.role == "policy" and repeats(hand.codec.decode(node.actions), self.window, self.times):
                hand.close(node, "repetition", f"{self.window} characters stand {self.times} times in one segment")
                await hand.verify(node)
            else:
                kept.append(node)
        return kept
