"""Token ids as text: piece by piece for colouring, whole for reading; ids themselves where no tokenizer is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from rolltree.analysis.source import RunSource
from rolltree.policy.tokenizer_file import model_tokenizer, saved_tokenizers
from rolltree.tree.node import Array

_BROKEN = "\ufffd"


@dataclass(eq=False)
class Pieces:
    """Turns ids into text. Without a tokenizer (`decode` is None) ids stand for themselves and `note` says why."""

    decode: Callable[[list[list[int]]], list[str]] | None
    anchor: tuple[int, ...] = ()
    """Ids put before a single id, so that a leading space is not lost."""
    note: str = ""
    _known: dict[int, str] = field(default_factory=dict[int, str])

    def text(self, ids: Array) -> str:
        """The text of a run of ids, special tokens included."""
        return self.texts([ids])[0]

    def texts(self, runs: Sequence[Array]) -> list[str]:
        """The texts of many runs."""
        if self.decode is None:
            return [" ".join(_shown(i) for i in run.tolist()) for run in runs]
        whole = [[int(i) for i in run.tolist()] if run.dtype.kind in "iu" and run.ndim == 1 else [] for run in runs]
        return self.decode(whole)

    def pieces(self, ids: Array) -> list[str]:
        """One piece of text per id; a character that several ids spell stands at the last of them."""
        if self.decode is None or ids.dtype.kind not in "iu" or ids.ndim > 1:
            return [f"{_shown(i)} " for i in ids.tolist()]
        wanted: list[int] = [int(i) for i in ids.tolist()]
        self._learn(set(wanted))
        out = [self._known[i] for i in wanted]
        start = 0
        while start < len(out):
            if _BROKEN not in out[start]:
                start += 1
                continue
            stop = start + 1
            whole = self.decode([wanted[start:stop]])[0]
            while _BROKEN in whole and stop < len(out) and stop - start < 8 and _BROKEN in out[stop]:
                stop += 1
                whole = self.decode([wanted[start:stop]])[0]
            out[start:stop] = [""] * (stop - start - 1) + [whole]
            start = stop
        return out

    def alone(self, ids: Array) -> list[str]:
        """One piece per id, each by itself: for alternatives, which do not follow one another."""
        return [self.pieces(ids[i : i + 1])[0] for i in range(len(ids))]

    def _learn(self, ids: set[int]) -> None:
        new = sorted(ids - self._known.keys())
        if new and self.decode is not None:
            before = self.decode([list(self.anchor)])[0]
            for id, text in zip(new, self.decode([[*self.anchor, i] for i in new]), strict=True):
                self._known[id] = text.removeprefix(before)


def pieces_of(source: RunSource) -> Pieces:
    """The tokenizer of a source: of its newest checkpoint, else of the model it names or was given with `--model`."""
    for file in _candidates(source):
        if file.is_file():
            return _load(file, file.stat().st_mtime_ns)
    model = source.model or str(source.config.get("model", ""))
    if source.model:
        return Pieces(None, note=f"no tokenizer.json found for --model {model}; showing token ids")
    if model:
        return Pieces(None, note=f"the tokenizer of {model!r} is not here; showing token ids (give it with --model)")
    return Pieces(None, note="these nodes name no tokenizer; showing token ids (give one with --model)")


def _candidates(source: RunSource) -> list[Path]:
    if not source.model and source.config and (mine := saved_tokenizers(source.path)):
        return mine
    name = source.model or str(source.config.get("model", ""))
    return [model_tokenizer(name)] if name else []


@lru_cache(maxsize=4)
def _load(file: Path, changed: int) -> Pieces:
    del changed
    from tokenizers import Tokenizer

    try:
        tokenizer: Any = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception for every damage
        return Pieces(None, note=f"{file} cannot be read ({error}); showing token ids")

    def decode(batch: list[list[int]]) -> list[str]:
        return list(tokenizer.decode_batch(batch, skip_special_tokens=False))

    return Pieces(decode, tuple(tokenizer.encode("a", add_special_tokens=False).ids[:1]))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return "[…]"
    return f"{value:.3g}" if isinstance(value, float) else str(int(value))
