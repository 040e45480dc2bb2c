"""TableGPT-R1: each kind of task is rewarded in its own way (arXiv 2512.20312)."""

from __future__ import annotations

import collections
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.filter.lengths import Overlong, Shaper
from rolltree.filter.parts import Composite, weighed
from rolltree.filter.shaping import RewardPart, Rewards
from rolltree.generate.independent import Independent
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.protocol import Entry, Judge, Opinion, Question, hand_of
from rolltree.generate.judge.routed import Criteria, Routed, field_of
from rolltree.generate.judged import judged_parts
from rolltree.knobs.varying import Knob
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, check_group

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


# The parts of TableGPT-R1's reward (arXiv 2512.20312).

TABLES = Rewards(
    (
        RewardPart("rules"),
        RewardPart("criteria"),
        RewardPart("steps"),
        RewardPart("fresh", 0.1),
        RewardPart("calm", 0.1),
        RewardPart("no_plot", 0.1),
    )
)
"""Its routes, of which an item has one (agentic items rules and steps), and its regularisers; those weights are not
published (0.1 each is reconstructed)."""


# Judges of habits that rewards breed: saying the same again, doubting without end, drawing what nobody asked for.
#
# All say 1 where there is nothing to blame, so that their weighted sum is a reward like any other.


@dataclass(frozen=True, slots=True)
class Fresh:
    """1 − the share of runs of `words` words that stood in the text before; shorter texts are fresh."""

    words: int = 4
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """How long a run is."""
        return f"fresh words={self.words}"

    def calls(self, size: int) -> int:
        """None: the text is there."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Count runs."""
        return [[self._of(entry.text.split()) for entry in question] for question in questions]

    def _of(self, said: Sequence[str]) -> float:
        runs = [tuple(said[i : i + self.words]) for i in range(len(said) - self.words + 1)]
        return len(set(runs)) / len(runs) if runs else 1.0


@dataclass(frozen=True, slots=True)
class Sparing:
    """1 for up to `free` of some words in a text, `free / n` for more (0 of them free: 1 without any, else 0).

    With `allowed`, an item whose field of that name is true may have as many as it likes.
    """

    said: tuple[str, ...]
    """Words, or parts of words, in any case."""
    free: int = 0
    allowed: str = ""
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The words and how many are free."""
        return f"sparing {self.said} free={self.free} allowed={self.allowed!r}"

    def calls(self, size: int) -> int:
        """None: the text is there."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Count words."""
        free = bool(self.allowed) and bool(field_of(hand_of(hand, self).item, self.allowed))
        return [[1.0 if free else self._of(entry.text) for entry in question] for question in questions]

    def _of(self, text: str) -> float:
        count = sum(len(re.findall(re.escape(word), text, re.IGNORECASE)) for word in self.said)
        return 1.0 if count <= self.free else self.free / count


@dataclass(frozen=True, slots=True)
class StepsTaken:
    """What the steps of a rollout earned: each call that worked, that only repeated one before, or that failed.

    The sum is kept within ±`most`, so that a long rollout is not worth more than a right one.
    """

    worked: float = 0.1
    repeated: float = -0.1
    failed: float = -0.2
    most: float = 0.5
    want: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What steps are worth."""
        return f"steps {self.worked:g} {self.repeated:g} {self.failed:g} most={self.most:g}"

    def calls(self, size: int) -> int:
        """None: what the environment said is recorded."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Read every step of each path."""
        return [[self._of(entry) for entry in question] for question in questions]

    def _of(self, entry: Entry) -> float:
        seen, said, earned = collections.Counter[bytes](), b"", 0.0
        for node in entry.tree.path(entry.node):
            if node.role == "policy":
                said += node.actions.tobytes()
            elif node.role == "env":
                again = seen[said] > 0
                earned += self.failed if node.notes.get("failed") else self.repeated if again else self.worked
                seen[said] += 1
                said = b""
        return float(np.clip(earned, -self.most, self.most))


@dataclass(frozen=True, slots=True)
class TableGptR1:
    """GRPO's credit on what an item's kind asks for: rules, its own criteria read by a judge, or rules and each step.

    An item says its `kind` (verifiable, open, agentic), its `criteria` and whether it may plot (`need_plot`) in its
    meta or its row of data; without a kind the task's environment decides. The judge is a frozen copy of the first
    policy, asked about open items alone. Reconstructed: which fault costs 0.1 (a repeated call) and which 0.2 (a failed
    one); the cap on a rollout's steps; the words; weights of regularisers; the objective, an image in the paper: GSPO's
    ratio and its narrow window, wider above, averaged over tokens. Entropy is rewarded from step 50 on. Warm-up,
    mixture, stages and the choice of items that 3 to 7 of 8 rollouts solve are the data's; a group without a difference
    teaches nothing anyway. The evidence is a writer of six words, against the same parts read off every text, by a
    judge that is silent without criteria or one that is not.
    """

    card: ClassVar[Card] = Card(
        "tablegpt_r1", "TableGPT-R1", "2512.20312", 2025,
        "Spider 86.7 and BIRD 63.2 with Qwen3-8B, which keeps 95.6 on GSM8K", ("generate", "filter", "objective"),
        "gspo",
        Evidence("texts that are right for their kind of task", "the same parts, unrouted, at their better",
                 "higher", 0.05, seeds=5, check="rolltree_papers.tablegpt_r1.study:tablegpt_r1"),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    judge: Literal["frozen", "verifier"] = "frozen"
    """Who reads criteria: a frozen copy of the first policy, or the task's verifier in its part `criteria`."""
    productive: float = 0.1
    """What a call that worked earns."""
    repeated: float = -0.1
    """What a call earns that stood there before (reconstructed)."""
    faulty: float = -0.2
    """What a call earns that failed (reconstructed)."""
    most: float = 0.5
    """Bound of what steps earn in all (reconstructed)."""
    fresh: float = 0.1
    """Weight of not repeating runs of four words."""
    calm: float = 0.1
    """Weight of not doubting again and again."""
    doubts: tuple[str, ...] = ("wait", "alternatively")
    """Words of doubt."""
    free: int = 2
    """How many of them nobody minds."""
    no_plot: float = 0.1
    """Weight of not plotting where the item does not say `need_plot`."""
    plots: tuple[str, ...] = ("plt.", "matplotlib", "seaborn")
    """What plots."""
    overlong: float = 1.0
    """Most that an answer loses near the limit of tokens."""
    clip_low: float = 3e-4
    clip_high: float = 4e-4
    entropy: Knob = "0, 0.001 at 50"
    """Coefficient of the entropy bonus."""
    updates: int = 4

    @at_start
    def build(self) -> Parts:
        """Independent rollouts, a route and habits for each, group credit, sequence ratios."""
        check_group("tablegpt_r1", self.group)
        rewards = weighed(TABLES, {"fresh": self.fresh, "calm": self.calm, "no_plot": self.no_plot})
        frozen = self.judge == "frozen"
        judges: dict[str, Judge] = {
            "rules": Routed(MeasuredJudge("reward"), ("verifiable", "agentic")),
            "criteria": Routed(Criteria() if frozen else MeasuredJudge("criteria"), ("open",)),
            "steps": Routed(StepsTaken(self.productive, self.repeated, self.faulty, self.most), ("agentic",)),
            "fresh": Fresh(),
            "calm": Sparing(self.doubts, self.free),
            "no_plot": Sparing(self.plots, allowed="need_plot"),
        }
        shapers: tuple[Shaper, ...] = (Composite(rewards), Overlong(penalty=self.overlong))
        return Parts(
            "tablegpt_r1", judged_parts(Independent(self.group), {p.name: judges[p.name] for p in rewards.parts}),
            load_credit("grpo"),
            load_objective("gspo", clip_low=self.clip_low, clip_high=self.clip_high, entropy_bonus=float(self.entropy)),
            averaging="token", shapers=shapers,
            peers={"judge": Peer(trained=False, writes=False)} if frozen else {}, optim={"minibatches": self.updates},
        )  # fmt: skip
