"""A small process reward model: a linear head on the policy's last hidden state at the end of a step.

It is fitted on step labels (`rolltree.analysis.step_head`) and reads any policy of that width; what it says is the
chance that a rollout from there ends right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rolltree.generate.judge.protocol import JudgeError, Opinion, Question, hand_of
from rolltree.tree.store.atomic import new_path

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class StepHead:
    """σ(w · (h − mean) / spread + b), read at the last token of each path."""

    weight: Floats
    bias: float
    mean: Floats
    spread: Floats
    model: str = ""
    """The policy it was fitted on."""
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What was fitted."""
        return f"step head {hashlib.sha256(self.weight.tobytes() + str(self.bias).encode()).hexdigest()[:8]}"

    def calls(self, size: int) -> int:
        """One for each path: the engine reads it again, which is counted as prefilled tokens."""
        return size

    def of(self, hidden: NDArray[np.floating]) -> Floats:
        """Chances from hidden states, one row each."""
        x = (np.atleast_2d(hidden).astype(np.float64) - self.mean) / self.spread
        return 1.0 / (1.0 + np.exp(-np.clip(x @ self.weight + self.bias, -30.0, 30.0)))

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """The chance of each entry; None where nothing was left to read it with."""
        asked = hand_of(hand, self)
        out: list[Opinion] = []
        for question in questions:
            read = [await asked.score(entry.node, want={"hidden"}) for entry in question]
            states = [scored.hidden for scored in read if scored is not None and scored.hidden is not None]
            if len(states) < len(question):
                out.append(None)
                continue
            if any(len(state) != len(self.weight) for state in states):
                raise JudgeError(
                    f"the step head was fitted on {self.model!r}, whose hidden states have {len(self.weight)} numbers, "
                    f"and this policy's have {len(states[0])}; fit one on this policy"
                )
            out.append([float(self.of(state)[0]) for state in states])
        return out


def save_head(head: StepHead, path: Path) -> None:
    """Write a head as a file of arrays."""
    with new_path(path, overwrite=True) as partial, partial.open("wb") as sink:
        np.savez(sink, weight=head.weight, bias=head.bias, mean=head.mean, spread=head.spread, model=head.model)


def load_head(path: Path | str) -> StepHead:
    """Read a head; a file that is none is refused."""
    try:
        with np.load(path, allow_pickle=False) as found:
            return StepHead(
                found["weight"], float(found["bias"]), found["mean"], found["spread"], str(found["model"])
            )  # fmt: skip
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise JudgeError(
            f"{path} is no step head ({type(error).__name__}); make one with rolltree labels RUN --kind head"
        ) from None
