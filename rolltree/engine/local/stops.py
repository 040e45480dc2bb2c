"""Where samples end. Every token has a byte saying what it means to a request; only tokens that may matter cost Python.

A stop string can only be completed by a token whose text holds the string's last character, so all others are ruled
out by one table lookup for the whole batch; for the few that remain the end of the text is decoded and searched.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rolltree.engine.protocol import Codec, Sampling, named, stop_text
from rolltree.policy.codec import HFCodec

EOS, STOP, MAYBE = 1, 2, 4
"""Bits: ends with eos; is a stop id; may complete a stop string."""

Meaning = NDArray[np.uint8]

_KEPT = 64


class StopTables:
    """Meanings of all tokens for the stop settings in use, and the check of stop strings."""

    def __init__(self, codec: Codec, vocab_size: int) -> None:
        self._codec = codec
        self._vocab = vocab_size
        self._pieces: list[str] | None = None
        self._tables: OrderedDict[tuple[object, ...], Meaning] = OrderedDict()
        self._certain: dict[tuple[str, ...], tuple[int, ...]] = {}

    def meaning(self, sampling: Sampling) -> Meaning:
        """One byte per token of the vocabulary."""
        key = (sampling.stop, sampling.stop_ids, sampling.ignore_eos)
        if key not in self._tables:
            self._tables[key] = self._build(sampling)
            if len(self._tables) > _KEPT:
                self._tables.popitem(last=False)
        self._tables.move_to_end(key)
        return self._tables[key]

    def certain(self, stop: tuple[str, ...]) -> tuple[int, ...]:
        """Ids that complete a stop string whatever stands before them, since their own text holds all of it.

        Strings with a blank are left out: some decoders drop one.
        """
        if stop not in self._certain:
            whole = [s for s in stop if " " not in s]
            texts = {**dict(enumerate(self._pieces_of_all() if whole else ())), **named(self._codec, whole)}
            self._certain[stop] = tuple(i for i, text in texts.items() if any(s in text for s in whole))
            if len(self._certain) > _KEPT:
                del self._certain[next(iter(self._certain))]
        return self._certain[stop]

    def fired(self, generated: Sequence[int] | NDArray[np.int64], stop: tuple[str, ...]) -> str:
        """The stop string that stands first in the end of the text; "" if none does.

        Called whenever a token may have completed one, so looking back a string's length is enough; a character can
        take several tokens and special tokens take no characters, hence the margin.
        """
        look_back = 4 * max(len(s) for s in stop) + 8
        text = stop_text(self._codec, generated[-look_back:], stop)
        hits = [(text.find(s), i, s) for i, s in enumerate(stop) if s in text]
        return min(hits)[2] if hits else ""

    def _build(self, sampling: Sampling) -> Meaning:
        table = np.zeros(self._vocab, dtype=np.uint8)
        if not sampling.ignore_eos and 0 <= self._codec.eos_id < self._vocab:
            table[self._codec.eos_id] |= EOS
        for i in sampling.stop_ids:
            table[i] |= STOP
        if sampling.stop:
            last = {s[-1] for s in sampling.stop}
            # U+FFFD: part of a character, which a later token may complete.
            last.add("\ufffd")
            for i, piece in enumerate(self._pieces_of_all()):
                if not last.isdisjoint(piece):
                    table[i] |= MAYBE
            for i in named(self._codec, sampling.stop):
                # A stop string that is the eos token is one all the same: the request names it.
                table[i] = (table[i] & ~np.uint8(EOS)) | MAYBE
        return table

    def _pieces_of_all(self) -> list[str]:
        if self._pieces is None:
            self._pieces = pieces(self._codec, self._vocab)
        return self._pieces


def pieces(codec: Codec, vocab_size: int) -> list[str]:
    """What each id adds to a text. Decoded after a letter, because some decoders drop a leading space."""
    anchor = codec.encode("a")[:1]
    lists = [[*anchor, i] for i in range(min(vocab_size, codec.vocab_size))]
    if isinstance(codec, HFCodec):
        head, texts = codec.decode_many([anchor])[0], codec.decode_many(lists)
    else:
        head, texts = codec.decode(anchor), [codec.decode(ids) for ids in lists]
    return [t.removeprefix(head) for t in texts]
