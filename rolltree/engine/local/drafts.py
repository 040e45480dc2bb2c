"""Guesses of the next tokens, from what has been written before: a back-off n-gram model that costs no forward pass.

`ngram` looks into the request's own text (its prompt and what it has written). `suffix` looks into all texts of the
engine, those of earlier training steps included: rollouts of one prompt repeat each other. A guess goes on while its
estimated probability of being right stays high enough, so that text nobody has seen costs nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

ORDERS = (12, 8, 6, 4, 3, 2)
"""How many tokens are compared, the longest first; the first that was seen before decides."""
_KEPT = 1 << 19
"""Entries of a shared table before its older half is forgotten."""
_PROMPTS = 4096
"""Prompts of which it is remembered that the shared table holds them."""

Followers = dict[int, int]
"""How often each token came next."""


class Drafter(Protocol):
    """Reads along and guesses. Calls come from one thread."""

    def begin(self, key: int, prefix: Sequence[int]) -> None:
        """A request with this key has been let in."""
        ...

    def written(self, key: int, text: Sequence[int], new: int) -> None:
        """The last `new` tokens of its text (prefix included) were written."""
        ...

    def ended(self, key: int) -> None:
        """It is gone."""
        ...

    def draft(self, key: int, tail: Sequence[int], most: int, least: float) -> list[int]:
        """Up to `most` next tokens, as long as all of them are right with probability `least` or more."""
        ...


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

    def next(self, tail: Sequence[int]) -> tuple[int, float]:
        """The likeliest next token and an estimate of its probability; (-1, 0) where nothing is known."""
        for order in ORDERS:
            if order <= len(tail):
                context = tuple(tail[len(tail) - order :])
                followers = self._fresh.get(context) or self._older.get(context)
                if followers:
                    token = max(followers, key=followers.__getitem__)
                    # One more that was something else: what was seen once is no certainty.
                    return token, followers[token] / (sum(followers.values()) + 1)
        return -1, 0.0

    def draft(self, tail: Sequence[int], most: int, least: float) -> list[int]:
        """See `Drafter.draft`."""
        out, sure = list[int](), 1.0
        context = list(tail)
        while len(out) < most:
            token, chance = self.next(context)
            sure *= chance
            if token < 0 or sure < least:
                break
            out.append(token)
            context.append(token)
        return out

    def _of(self, context: tuple[int, ...]) -> Followers:
        followers = self._fresh.get(context)
        if followers is None:
            # What is used again stays.
            followers = self._fresh[context] = self._older.pop(context, {})
        return followers


class OwnText:
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

    def draft(self, key: int, tail: Sequence[int], most: int, least: float) -> list[int]:
        """See `Drafter`."""
        return self._tables[key].draft(tail, most, least)


class AllTexts:
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

    def ended(self, key: int) -> None:
        """See `Drafter`."""

    def draft(self, key: int, tail: Sequence[int], most: int, least: float) -> list[int]:
        """See `Drafter`."""
        return self.table.draft(tail, most, least)
