"""RebuttalAgent: analysis, strategy and response, graded by one's own start (arXiv 2601.15715)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Composite
from rolltree.filter.rewards import REBUTTAL
from rolltree.filter.weights import weighed
from rolltree.generate.independent import Independent
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.judge.texts import Blocks, Unlike, Within
from rolltree.generate.judged import judged_parts
from rolltree.generate.strategy import TreeStrategy
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, check_group


@dataclass(frozen=True, slots=True)
class RebuttalAgent:
    """GRPO on the blocks being there, two grades of a frozen copy of oneself, and the distance from known templates.

    The copy says how likely " yes" is against " no" about the analysis and about the response; it is the first policy
    and does not move. A block that is not there is worth 0. Weights are not published: 1 each (reconstructed). Distance
    is that of pieces of three characters, where the paper compares meanings; the templates are yours to give
    (reconstructed), and without any that part is left out. Nonsense is far from templates too: `gated` counts distance
    only where the form is right. A grade of oneself is no evidence, so the check asks a judge that knows the truth.
    """

    card: ClassVar[Card] = Card(
        "rebuttal_agent", "RebuttalAgent", "2601.15715", 2026,
        "rebuttals graded 9.42 where the base has 7.96; 0.79 less without the grade of the response",
        ("generate", "filter"), "grpo",
        Evidence("responses that meet the concern and are no template", "the same without distance from templates",
                 "higher", 0.05, seeds=5, check="studies.exact.rebuttal:rebuttal_agent"),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    judge: Literal["frozen", "verifier"] = "frozen"
    """Who measures the parts: a frozen copy of the first policy, or the task's verifier."""
    blocks: tuple[str, str, str] = ("Analysis", "Strategy", "Response")
    """Names of the three blocks that an answer has."""
    templates: tuple[str, ...] = ()
    """Responses that nobody wants to read again."""
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
