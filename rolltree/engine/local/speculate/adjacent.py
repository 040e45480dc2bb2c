"""Goose (arXiv 2604.02047): copies from the request's own text, and which tokens usually stand next to each other.

Two sources that cost no forward pass. A copy is a continuation of the last few tokens where they stood before; it is
rare and often right. Adjacency is always there and often wrong: the likeliest followers of a token (or of a pair) in
the latest logits that were computed after it, those of guesses that were wrong included. The paper also reads the
logits of the prompt's inner tokens; here they are never computed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch

from rolltree.engine.local.speculate.drafter import DraftAsk, Drafter, Lead, Seen
from rolltree.engine.local.speculate.tree import Guess

_MATCH = (5, 4, 3)
"""How many tokens a copy must share with the end of the text, the longest first."""
_CHAIN = 20
"""Tokens copied from one place."""
_TOP = 10
_PAIRS = 1 << 17
"""Pairs of tokens that are remembered, the latest."""
_RATE = 0.3
"""Weight of the newest cycle in the share of copied tokens that was right."""


class AdjacentText(Drafter):
    """Copies (`lead`) and adjacency (`propose`)."""

    watches = True

    def __init__(self) -> None:
        self._texts: dict[int, list[int]] = {}
        self._kept: dict[int, float] = {}
        self._copied: dict[int, list[int]] = {}
        """What was copied last."""
        self._one: dict[int, list[Guess]] = {}
        self._two: OrderedDict[tuple[int, int], list[Guess]] = OrderedDict()

    def begin(self, key: int, prefix: Sequence[int]) -> None:
        """See `Drafter`."""
        self._texts[key], self._kept[key] = list(prefix), 0.5

    def written(self, key: int, text: Sequence[int], new: int) -> None:
        """See `Drafter`."""
        self._texts[key] += text[len(text) - new :]

    def ended(self, key: int) -> None:
        """See `Drafter`."""
        for table in (self._texts, self._kept, self._copied):
            table.pop(key, None)

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[Guess]]:
        """See `Drafter`."""
        return [self._followers([*ask.tail[-2:], *ask.path][-2:])[: ask.most] for ask in asks]

    def lead(self, key: int, most: int) -> Lead | None:
        """A copy from the first place where the last tokens stood before; continued from its own end where it is
        sure."""
        text = self._texts[key]
        copied, sure = _copy(text)
        if not copied:
            self._copied.pop(key, None)
            return None
        if sure > 0.6:
            while len(copied) < min(most, int(100 * sure)):
                more, again = _copy([*text, *copied])
                if not more:
                    break
                copied += more
                if sure == 1 and again < 1:
                    break
        self._copied[key] = copied = copied[:most]
        return Lead(copied, sure, self._kept[key])

    def saw(self, seen: Seen) -> None:
        """See `Drafter`."""
        states, contexts = list[tuple[int, int]](), list[tuple[int, int]]()
        for row, key in enumerate(seen.keys):
            first, d = seen.first[row], seen.drafts
            states.append((row, 0))
            contexts.append((seen.before[row], first))
            for i in range(0 if d is None else int(d.count[row])):
                assert d is not None
                up = int(d.parents[row, i])
                states.append((row, i + 1))
                contexts.append((int(d.tokens[row, up - 1]) if up else first, int(d.tokens[row, i])))
            if key in self._copied and key in self._kept and d is not None and d.count[row]:
                self._judge(key, [int(d.tokens[row, node - 1]) for node in seen.paths[row]])
        index = torch.tensor(states, device=seen.hidden.device).T
        logits = seen.logits(seen.hidden[index[0], index[1]])
        value, token = logits.float().topk(min(_TOP, logits.shape[-1]), -1)
        scores: list[list[float]] = value.softmax(-1).tolist()
        for (before, last), ids, row in zip(contexts, token.tolist(), scores, strict=True):
            found = [Guess(i, c) for i, c in zip(ids, row, strict=True)]
            self._one[last] = self._two[before, last] = found
            self._two.move_to_end((before, last))
        while len(self._two) > _PAIRS:
            self._two.popitem(last=False)

    def _judge(self, key: int, right: list[int]) -> None:
        copied = self._copied.pop(key)
        kept = next((i for i, (a, b) in enumerate(zip(copied, right, strict=False)) if a != b), len(right))
        self._kept[key] += _RATE * (min(kept, len(copied)) / len(copied) - self._kept[key])

    def _followers(self, last: Sequence[int]) -> list[Guess]:
        if len(last) == 2 and (found := self._two.get((last[0], last[1]))) is not None:
            return found
        return self._one.get(last[-1], [])


def _copy(text: Sequence[int]) -> tuple[list[int], float]:
    """What followed the last tokens at their first earlier place, and how sure that is."""
    for n in _MATCH:
        end = list(text[len(text) - n :])
        if len(end) < n:
            continue
        last = end[-1]
        places = [at for at in range(n, len(text)) if text[at - 1] == last and list(text[at - n : at]) == end]
        if places:
            copied = list(text[places[0] : places[0] + _CHAIN])
            if len(places) > 1 and len({text[at] for at in places}) == 1:
                return copied, 1.0
            if len(copied) >= 8:
                return copied, min(0.9, 0.7 + 0.2 * (len(copied) - 8) / 12)
            return copied, 0.6 * len(copied) / 8
    return [], 0.0
