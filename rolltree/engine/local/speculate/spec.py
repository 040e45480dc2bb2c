"""How to guess ahead, as chosen by the user: `DRAFTER` or `DRAFTER:SHAPE`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from rolltree.engine.local.speculate.adjacent import AdjacentText
from rolltree.engine.local.speculate.control import Bandit, GuessControl, Resting
from rolltree.engine.local.speculate.drafter import Drafter
from rolltree.engine.local.speculate.heads import Heads
from rolltree.engine.local.speculate.shapes import GuessShape, GuessWidths, Spine, shape_of
from rolltree.engine.local.speculate.smaller import SmallerPolicy
from rolltree.engine.local.speculate.tables import AllTexts, OwnText
from rolltree.engine.protocol import Codec, EngineError
from rolltree.policy.decoder import Decoder
from rolltree.policy.foreign import decoder_of
from rolltree.policy.llama import LlamaDecoder
from rolltree.policy.load import LoadedModel, load_model
from rolltree.policy.models import model_folder

SHAPES = "6 (a chain), 3x2x1 (a tree), 2+3x4 (a trunk of 2, then 3 paths of 4), spine (of adjacent), or auto"


@dataclass(frozen=True, slots=True)
class Target:
    """For whom is guessed."""

    decoder: Decoder
    codec: Codec


def _heads(target: Target) -> Drafter:
    if not isinstance(target.decoder, LlamaDecoder):
        raise EngineError(
            "speculate heads learns through the policy's output layer, which only models of the Llama family share; "
            "use suffix, adjacent or a smaller model"
        )
    return Heads(target.decoder)


DRAFTERS: dict[str, Callable[[Target], Drafter]] = {
    "ngram": lambda _: OwnText(),
    "suffix": lambda _: AllTexts(),
    "adjacent": lambda _: AdjacentText(),
    "heads": _heads,
}


@dataclass(frozen=True, slots=True)
class Speculation:
    """How to guess ahead."""

    drafter: Any
    """ngram: from the request's own text. suffix: from all texts of the engine, earlier training steps included.
    adjacent: copies of the own text and which tokens follow which. heads: a head on the last state, trained when the
    engine is idle. Or a smaller policy over the same tokens: its name, its folder, or the model itself."""
    shape: GuessShape | None = None
    """What is guessed: a chain of 8, for adjacent a spine with branches, when left out."""
    least: float = 0.3
    """It rests where a smaller share of the guessed depth was right."""
    rows: int = 16
    """It guesses only while so many requests or fewer are decoded: with more, the width is used already."""
    auto: bool = False
    """A bandit chooses among several shapes, and not to guess, by tokens per second; `rows` is then not asked."""

    def __post_init__(self) -> None:
        if isinstance(self.shape, Spine) and self.drafter != "adjacent":
            raise EngineError(f"the shape spine begins with a copy, and {self._name} makes none; use adjacent")

    @property
    def _name(self) -> str:
        return self.drafter if isinstance(self.drafter, str) else "a model"

    @classmethod
    def of(cls, text: str) -> Speculation | None:
        """Read `suffix`, `suffix:6`, `nano:3x2x1`, `adjacent:auto`; "off" is None."""
        if text == "off":
            return None
        name, colon, how = text.rpartition(":")
        if not colon or (name not in DRAFTERS and how != "auto" and shape_of(how) is None):
            name, how = text, ""
        elif how != "auto" and shape_of(how) is None:
            raise EngineError(f"speculate is {text!r}; after the colon stands {SHAPES}")
        if name not in DRAFTERS:
            _check_model(name)
        if how == "auto":
            return cls(name, auto=True)
        return cls(name, shape_of(how) if how else None)

    def control(self) -> GuessControl:
        """What chooses the shape of each step."""
        usual = GuessWidths((1,) * 8, self.least)
        if self.auto:
            chains: list[GuessShape] = [GuessWidths((1,) * n, 0.1) for n in (2, 4, 8)]
            trees: list[GuessShape] = [GuessWidths((1, 1, 3, 1, 1, 1), 0.01), GuessWidths((3, 2, 1, 1), 0.01)]
            return Bandit([None, *chains, *([Spine(20), Spine()] if self.drafter == "adjacent" else trees)])
        if self.shape is not None:
            return Resting(self.shape, self.least, self.rows)
        return Resting(Spine() if self.drafter == "adjacent" else usual, self.least, self.rows)

    def made(self, target: Target) -> Drafter:
        """The drafter for a policy."""
        if isinstance(self.drafter, str) and self.drafter in DRAFTERS:
            return DRAFTERS[self.drafter](target)
        model, decoder = self.drafter, target.decoder
        if isinstance(model, str):
            model = load_model(model, decoder.dtype if decoder.dtype != torch.float64 else torch.float32)
        if isinstance(model, LoadedModel):
            _check_tokens(model, target)
            model = model.model
        smaller = decoder_of(model, decoder.dtype, decoder.device)
        return SmallerPolicy(smaller, decoder.vocab_size)


def _check_model(name: str) -> None:
    """Before any work: a name that is neither a drafter nor a model."""
    try:
        model_folder(name)
    except Exception as error:
        known = ", ".join(DRAFTERS)
        raise EngineError(f"speculate is {name!r}, neither one of {known} nor a model ({error})") from error


def _check_tokens(model: LoadedModel, target: Target) -> None:
    if model.codec.vocab_size != target.codec.vocab_size or any(
        model.codec.decode([i]) != target.codec.decode([i]) for i in range(target.codec.vocab_size)
    ):
        raise EngineError(
            f"{model.name} cannot guess for this policy: their tokens differ ({model.codec.vocab_size} against "
            f"{target.codec.vocab_size}, or other texts); take a smaller model of the same family"
        )
