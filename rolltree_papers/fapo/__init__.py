"""FAPO: flawed-aware policy optimisation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Flawed
from rolltree.generate.independent import Independent
from rolltree.generate.judge.engine_judges import likelihoods, prompt_of
from rolltree.generate.judge.protocol import Entry, JudgeError, Opinion, Question, hand_of
from rolltree.generate.judged import JUDGED, Judged
from rolltree.generate.strategy import TreeStrategy
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, check_group
from rolltree.task.spoken import question_of

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


# The first wrong step of an answer, as its own engine finds it.


@dataclass(frozen=True, slots=True)
class FirstError:
    """Grades an answer by the share of its steps before the first one that is unlikely where it stands; 1 = none is.

    A step is unlikely where the mean probability of its tokens, after the prompt and the steps before, is below
    `least`.
    """

    delimiter: str = ","
    least: float = 0.5
    role: str = "judge"
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.delimiter:
            raise JudgeError("the first wrong step is looked for among steps; give the text that ends one")

    @property
    def name(self) -> str:
        """Everything that could change a number."""
        return f"first error {self.role} delimiter={self.delimiter!r} least={self.least:g}"

    def calls(self, size: int) -> int:
        """One an answer."""
        return size

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """All answers at once."""
        mine = hand_of(hand, self)
        found = await asyncio.gather(*(self._of(mine, entry) for question in questions for entry in question))
        shares = iter(found)
        out: list[Opinion] = []
        for question in questions:
            row = [next(shares) for _ in question]
            out.append(None if any(x is None for x in row) else [float(x) for x in row if x is not None])
        return out

    async def _of(self, hand: Hand, entry: Entry) -> float | None:
        steps = steps_of(entry.text, self.delimiter)
        before = question_of(prompt_of(hand))
        for i, step in enumerate(steps):
            said = await likelihoods(hand, self.role, before, [step], [entry], mean=True)
            if said is None:
                return None
            if np.exp(said[0]) < self.least:
                return i / len(steps)
            before += step
        return 1.0 if steps else float("nan")


def steps_of(text: str, delimiter: str) -> list[str]:
    """The steps of an answer, each with the delimiter that ends it."""
    parts = text.split(delimiter)
    return [part + delimiter for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


@dataclass(frozen=True, slots=True)
class Fapo:
    """Right answers reached by wrong steps are worth half of clean ones, so they help early and are unlearned later.

    With shares α clean and β wrong a flawed answer's advantage is −(α − β)/σ: positive while successes are rare,
    negative once clean ones outnumber errors, without a schedule. The judge is the part of the verdict that checks the
    steps (`arithmetic` has it); with `judge="likelihood"` it is a frozen copy of the first policy that looks for the
    first unlikely step of right answers, where the paper asks a generative reward model. No metric of a run says how
    clean right answers are, so the evidence is a bandit: clean 0.1, flawed 0.2, wrong 0.7 at the start, and a baseline
    that sees the same flaws and calls them wrong. A judge of one's own learns by `--reward first_error` from rows whose
    answer is the first wrong step.
    """

    card: ClassVar[Card] = Card(
        "fapo", "Flawed-aware policy optimisation", "FAPO", 2025,
        "more answers right for the right reasons at no more tokens", ("filter", "credit"), "grpo",
        Evidence("clean share", "grpo that calls flawed answers wrong", "higher", 0.1, seeds=5,
                 check="rolltree_papers.fapo.study:fapo"),
        task="arithmetic", counter=Counter("reward/part/flawed"),
    )  # fmt: skip
    group: int = 8
    penalty: float = 0.5
    """What a flaw takes off a right answer: half of the distance between right and wrong."""
    part: str = "steps"
    """The part of a verdict that says which share of the steps is right."""
    judge: Literal["verifier", "likelihood"] = "verifier"
    """Who looks for flaws: the task's verifier, or a frozen copy of the first policy, on right answers alone."""
    delimiter: str = ","
    """What ends a step, for the judge."""
    least: float = 0.5
    """Mean probability of a step's tokens below which the judge calls it wrong."""
    clip_low: float = 0.2
    clip_high: float = 0.28

    def build(self) -> Parts:
        """Independent rollouts, flaws marked, group credit of the corrected rewards, asymmetric clip."""
        check_group("fapo", self.group)
        part, peers = self.part, dict[str, Peer]()
        own: TreeStrategy = Independent(self.group)
        if self.judge == "likelihood":
            # Unparsable output is no flaw in the released code, and neither is an abstention.
            own = Judged(own, FirstError(self.delimiter, self.least), "right", abstained=1.0)
            part, peers = JUDGED, {"judge": Peer(trained=False, writes=False)}
        return Parts(
            "fapo", own, load_credit("flawed_positive", penalty=self.penalty),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high), averaging="token",
            shapers=(Flawed(part),), peers=peers,
        )  # fmt: skip
