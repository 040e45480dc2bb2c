"""RebuttalAgent: analysis, strategy and response, graded by one's own start (arXiv 2601.15715)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Composite, weighed
from rolltree.filter.shaping import REBUTTAL
from rolltree.generate.independent import Independent
from rolltree.generate.judge.backward import alike
from rolltree.generate.judge.engine_judges import Likelihood, prompt_of
from rolltree.generate.judge.protocol import Judge, JudgeError, Opinion, Question, hand_of
from rolltree.generate.judged import judged_parts
from rolltree.generate.strategy import TreeStrategy
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, check_group
from rolltree.task.spoken import question_of

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


# Judges of a text's form: which blocks it has, what stands in one of them, how far it is from given texts.


@dataclass(frozen=True, slots=True)
class Blocks:
    """1 where a text is these blocks, <name>…</name>, each once, none empty, in this order and nothing else; else 0."""

    names: tuple[str, ...]
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.names:
            raise JudgeError("a judge of blocks knows none; name at least one")

    @property
    def name(self) -> str:
        """The blocks."""
        return f"blocks {' '.join(self.names)}"

    def calls(self, size: int) -> int:
        """None: the text is there."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Read each text."""
        return [[float(self._fits(entry.text)) for entry in question] for question in questions]

    def _fits(self, text: str) -> bool:
        if any(text.count(f"<{name}>") != 1 or text.count(f"</{name}>") != 1 for name in self.names):
            return False
        form = r"\s*".join(rf"<{re.escape(name)}>.*\S.*</{re.escape(name)}>" for name in self.names)
        return re.fullmatch(rf"\s*{form}\s*", text, re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Within:
    """What another judge says of one block of each text; of a text without that block it says nothing."""

    block: str
    judge: Judge

    @property
    def name(self) -> str:
        """The block and the judge."""
        return f"within {self.block}: {self.judge.name}"

    @property
    def want(self) -> frozenset[str]:
        """Of the judge."""
        return self.judge.want

    def calls(self, size: int) -> int:
        """Of the judge."""
        return self.judge.calls(size)

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Ask about blocks; a question with an entry that lacks it is an abstention and is not asked."""
        inner = [[replace(entry, text=inside(entry.text, self.block) or "") for entry in q] for q in questions]
        whole = [i for i, question in enumerate(inner) if all(entry.text for entry in question)]
        said = await self.judge(hand, [inner[i] for i in whole], rng) if whole else ()
        out: list[Opinion] = [[float("nan")] * len(question) for question in questions]
        for i, opinion in zip(whole, said, strict=True):
            out[i] = opinion
        return out


@dataclass(frozen=True, slots=True)
class Unlike:
    """How far a text is from the nearest of given ones: 1 − the share of common pieces of three characters (Dice).

    {prompt} in a given text stands for the item's prompt: an answer that only copies it scores 0.
    """

    texts: tuple[str, ...]
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.texts:
            raise JudgeError("a judge of distance has nothing to measure from; give at least one text")

    @property
    def name(self) -> str:
        """The texts."""
        return f"unlike {self.texts!r}"

    def calls(self, size: int) -> int:
        """None: the text is there."""
        return 0

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """Measure each text."""
        shown = any("{prompt}" in text for text in self.texts)
        prompt = question_of(prompt_of(hand_of(hand, self))) if shown else ""
        texts = [text.replace("{prompt}", prompt) for text in self.texts]
        return [[1 - max(alike(entry.text, text) for text in texts) for entry in q] for q in questions]


def inside(text: str, block: str) -> str | None:
    """What stands between <block> and </block>, without the blanks around it; None where there is no such block."""
    found = re.search(rf"<{re.escape(block)}>(.*?)</{re.escape(block)}>", text, re.DOTALL)
    return None if found is None else found.group(1).strip()


TEMPLATES = (
    "Thank you for the comment. We will address this point in the revised paper.",
    "We thank the reviewer for the helpful remark and will make this clearer.",
    "{prompt}",
)
"""Responses to any review at all (written for Rolltree; the paper's are not published)."""


@dataclass(frozen=True, slots=True)
class RebuttalAgent:
    """GRPO on the blocks being there, two grades of a frozen copy of oneself, and the distance from known templates.

    The copy says how likely " yes" is against " no" about the analysis and about the response; it is the first policy
    and does not move. A block that is not there is worth 0. Weights are not published: 1 each (reconstructed). Distance
    is that of pieces of three characters, where the paper compares meanings; templates are a few usual phrases and the
    review itself (reconstructed), and yours replace them. Nonsense is far from templates too: `gated` counts distance
    only where the form is right. A grade of oneself is no evidence, so the check asks a judge that knows the truth.
    """

    card: ClassVar[Card] = Card(
        "rebuttal_agent", "RebuttalAgent", "2601.15715", 2026,
        "rebuttals graded 9.42 where the base has 7.96; 0.79 less without the grade of the response",
        ("generate", "filter"), "grpo",
        Evidence("responses that meet the concern and are no template", "the same without distance from templates",
                 "higher", 0.05, seeds=5, check="rolltree_papers.rebuttal_agent.study:rebuttal_agent"),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    judge: Literal["frozen", "verifier"] = "frozen"
    """Who measures the parts: a frozen copy of the first policy, or the task's verifier."""
    blocks: tuple[str, str, str] = ("Analysis", "Strategy", "Response")
    """Names of the three blocks that an answer has."""
    templates: tuple[str, ...] = TEMPLATES
    """Responses that nobody wants to read again; {prompt} is the review itself. () leaves the distance out."""
    format: float = 1.0
    """Weight of having all blocks."""
    thinking: float = 1.0
    """Weight of the grade of analysis and strategy."""
    response: float = 1.0
    """Weight of the grade of the response."""
    diversity: float = 1.0
    """Weight of the distance from the templates."""
    gated: bool = True
    """Whether distance counts only where all blocks are there (reconstructed)."""
    clip: float = 0.2
    kl: float = 0.01

    def build(self) -> Parts:
        """Independent rebuttals, four grades, their sum, mean-and-deviation credit, clipped surrogate with a KL."""
        check_group("rebuttal_agent", self.group)
        frozen = self.judge == "frozen"
        weights = {part.name: float(getattr(self, part.name)) for part in REBUTTAL.parts}
        if frozen and not self.templates:
            weights["diversity"] = 0.0
        gates = {"diversity": "format"} if self.gated and weights["format"] else {}
        rewards = weighed(REBUTTAL, weights, gates)
        own: TreeStrategy = Independent(self.group)
        peers = dict[str, Peer]()
        if frozen:
            known: dict[str, Judge] = {
                "format": Blocks(self.blocks),
                "thinking": Within(self.blocks[0], _asked("Does this analysis understand the reviewer?")),
                "response": Within(self.blocks[2], _asked("Does this response meet the reviewer's concern?")),
            }
            if weights["diversity"]:
                known["diversity"] = Within(self.blocks[2], Unlike(self.templates))
            own = judged_parts(own, {part.name: known[part.name] for part in rewards.parts}, abstained=0.0)
            peers = {"judge": Peer(trained=False, writes=False)}
        return Parts(
            "rebuttal_agent", own, load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
            shapers=(Composite(rewards),), peers=peers,
        )  # fmt: skip


def _asked(question: str) -> Likelihood:
    return Likelihood("{prompt}\n{entry}\n" + question, options=(" yes", " no"))
