"""Guesses of the next tokens, from what has been written before: a back-off n-gram model that costs no forward pass.

`ngram` looks into the request's own text (its prompt and what it has written). `suffix` looks into all texts of the
engine, those of earlier training steps included: rollouts of one prompt repeat each other. A guess goes on while its
estimated probability of being right stays high enough, so that text nobody has seen costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rolltree.engine.local.speculate.drafter import REACH, DraftAsk, Drafter
from rolltree.engine.local.speculate.tree import Guess

ORDERS = (REACH, 8, 6, 4, 3, 2)
"""How many tokens are compared, the longest first; the first that was seen before decides."""
_KEPT = 1 << 19
"""Entries of a shared table before its older half is forgotten."""
_PROMPTS = 4096
"""Prompts of which it is remembered that the shared table holds them."""

Followers = dict[int, int]
"""How often each token came next."""


class NgramTable:
    """Which token followed which few, how often; bounded by forgetting what was not seen for long."""

    def __init__(self, kept: int = _KEPT) -> None:
        self._fresh: dict[tuple[int, ...], Followers] = {}
        self._older: dict[tuple[int, ...], Followers] = {}
        self._kept = kept

    def __len__(self) -> int:
        return len(self._fresh) + len(self._older)

    def add(self, text: Sequence[int], start: int) -> None:
        """Learn the tokens from position `start` on, each after the few before it."""
        for at in range(max(start, 1), len(text)):
            token = text[at]
            for order in ORDERS:
                if order <= at:
                    followers = self._of(tuple(text[at - order : at]))
                    followers[token] = followers.get(token, 0) + 1
        if len(self._fresh) > self._kept // 2:
            self._fresh, self._older = {}, self._fresh

    def next(self, tail: Sequence[int], most: int) -> list[Guess]:
        """The likeliest next tokens with estimates of their probabilities; none where nothing is known."""
        for order in ORDERS:
            if order <= len(tail):
                context = tuple(tail[len(tail) - order :])
                followers = self._fresh.get(context) or self._older.get(context)
                if followers:
                    # One more that was something else: what was seen once is no certainty.
                    total = sum(followers.values()) + 1
                    if most == 1:
                        token = max(followers, key=followers.__getitem__)
                        return [Guess(token, followers[token] / total)]
                    best = sorted(followers, key=followers.__getitem__, reverse=True)[:most]
                    return [Guess(token, followers[token] / total) for token in best]
        return []

    def after(self, ask: DraftAsk) -> list[Guess]:
        """What comes after a text and a path."""
        return self.next([*ask.tail, *ask.path] if ask.path else ask.tail, ask.most)

    def _of(self, context: tuple[int, ...]) -> Followers:
        followers = self._fresh.get(context)
        if followers is None:
            # What is used again stays.
            followers = self._fresh[context] = self._older.pop(context, {})
        return followers


class OwnText(Drafter):
    """A table for each request, of its own text alone."""

    def __init__(self) -> None:
        self._tables: dict[int, NgramTable] = {}

    def begin(self, key: int, prefix: Sequence[int]) -> None:
        """See `Drafter`."""
        table = self._tables[key] = NgramTable()
        table.add(prefix, 0)

    def written(self, key: int, text: Sequence[int], new: int) -> None:
        """See `Drafter`."""
        self._tables[key].add(text, len(text) - new)

    def ended(self, key: int) -> None:
        """See `Drafter`."""
        self._tables.pop(key, None)

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[Guess]]:
        """See `Drafter`."""
        return [self._tables[ask.key].after(ask) for ask in asks]


class AllTexts(Drafter):
    """One table of everything the engine has written, and of each different prompt once."""

    def __init__(self, kept: int = _KEPT) -> None:
        self.table = NgramTable(kept)
        self._prompts: deque[int] = deque(maxlen=_PROMPTS)
        self._known: set[int] = set()

    def begin(self, key: int, prefix: Sequence[int]) -> None:
        """See `Drafter`."""
        name = hash(tuple(prefix))
        if name in self._known:
            return
        if len(self._prompts) == _PROMPTS:
            self._known.discard(self._prompts[0])
        self._prompts.append(name)
        self._known.add(name)
        self.table.add(prefix, 0)

    def written(self, key: int, text: Sequence[int], new: int) -> None:
        """See `Drafter`."""
        self.table.add(text, len(text) - new)

    def propose(self, asks: Sequence[DraftAsk]) -> list[list[Guess]]:
        """See `Drafter`."""
        return [self.table.after(ask) for ask in asks]
