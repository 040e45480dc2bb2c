"""Text to ids and back through a Hugging Face tokenizer: exact ids in, exact ids out, no hidden special tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from rolltree.errors import ModelError
from rolltree.policy.quoted import Quoted

SHORT = 64
"""Characters of a text whose ids are kept."""
KEPT = 4096
"""Most texts whose ids are kept."""


class HFCodec:
    """Codec (see `rolltree.engine.protocol.Codec`) of a Hugging Face tokenizer."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocab_size: int | None = None) -> None:
        eos = tokenizer.eos_token_id
        if not isinstance(eos, int):
            raise ModelError(f"The tokenizer of {tokenizer.name_or_path!r} names no eos token; set `eos_token` in it.")
        self.tokenizer = tokenizer
        self._eos = eos
        self._size = vocab_size or len(tokenizer)
        self._kept: dict[str, tuple[int, ...]] = {}

    @property
    def vocab_size(self) -> int:
        """Number of ids the model knows (may exceed the tokenizer's)."""
        return self._size

    @property
    def eos_id(self) -> int:
        """The id that ends a text."""
        return self._eos

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with no special tokens added; in data (`Quoted`) their names are text.

        Ids of short texts are kept: environments repeat theirs.
        """
        if isinstance(text, Quoted) and any(self._control.search(text, a, b) for a, b in text.data):
            return self._around_data(text)
        if text in self._kept:
            return list(self._kept[text])
        ids: Any = self.tokenizer.encode(text, add_special_tokens=False)
        out = [int(i) for i in ids]
        if len(text) <= SHORT and len(self._kept) < KEPT:
            self._kept[text] = tuple(out)
        return out

    @cached_property
    def _control(self) -> re.Pattern[str]:
        """Finds the text of a special token, the longest that begins at a place."""
        names = sorted(set(self.specials.values()), key=len, reverse=True)
        return re.compile("|".join(map(re.escape, names)) or "(?!)")

    def _around_data(self, text: Quoted) -> list[int]:
        """Ids of a text in whose data the name of a special token stands: between the template's own, all is text."""
        known = {name: i for i, name in self.specials.items()}
        out: list[int] = []
        at = 0
        for found in self._control.finditer(text):
            if any(found.start() < b and found.end() > a for a, b in text.data):
                continue
            out += [*self._as_text(text[at : found.start()]), known[found.group()]]
            at = found.end()
        return out + self._as_text(text[at:])

    def _as_text(self, text: str) -> list[int]:
        ids: Any = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True) if text else ()
        return [int(i) for i in ids]

    @cached_property
    def specials(self) -> Mapping[int, str]:
        """Special tokens, by id."""
        added: Mapping[int, Any] = getattr(self.tokenizer, "added_tokens_decoder", {})
        return {int(i): str(token.content) for i, token in added.items() if token.special}

    def decode(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Text of ids; special tokens are dropped and spaces are left as they are."""
        return self.decode_many([ids])[0]

    def decode_exact(self, ids: Sequence[int] | NDArray[Any]) -> str:
        """Text of ids, special tokens included."""
        return self.decode_many([ids], exact=True)[0]

    def decode_many(self, batch: Sequence[Sequence[int] | NDArray[Any]], *, exact: bool = False) -> list[str]:
        """Texts of many id lists; `exact` keeps special tokens."""
        lists = [[int(i) for i in np.asarray(ids).tolist()] for ids in batch]
        backend: Any = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is not None:
            return list(backend.decode_batch(lists, skip_special_tokens=not exact))
        decode: Any = self.tokenizer.decode
        return [str(decode(i, skip_special_tokens=not exact, clean_up_tokenization_spaces=False)) for i in lists]
