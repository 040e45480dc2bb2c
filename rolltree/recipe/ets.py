"""ETS: efficient tree search for inference-time scaling (arXiv 2502.13575)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.stepsearch import StepSearch
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group


@dataclass(frozen=True, slots=True)
class Ets:
    """Searches with a frozen policy: of the paths so far it keeps those that promise much, cost little, differ most.

    `rolltree rollout ets` searches; the answer chosen stands in each tree's notes. The paper's process reward model
    and sentence encoder are replaced by what an engine has: the policy's own confidence in what it wrote, and its
    embeddings. Give `StepSearch` a `scorer` of your own for a real one. `select` runs what ETS is compared with.
    Nobody trains on these trees in the paper; `rolltree train ets` takes GRPO's update on their leaves, which do not
    follow the policy's distribution, because paths were kept for what was written.
    """

    card: ClassVar[Card] = Card(
        "ets", "Efficient tree search", "2502.13575", 2025,
        "1.8 times smaller caches and 1.4 times the throughput at near-equal accuracy (MATH500, GSM8K)",
        ("control", "filter"), "grpo",
        Evidence("accuracy", "the best vote over independent rollouts at equal tokens",
                 check="studies.searches:ets", seeds=6),
        counter=Counter("rollout/pruned/the rule gave it no way on"),
    )  # fmt: skip
    width: int = 16
    """Paths that are kept after each step."""
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step: "," between the totals of arithmetic and the steps of countdown."""
    scorer: Literal["path", "step", "least"] = "path"
    """Confidence over the whole path, its last step, or its least likely step."""
    select: Literal["ets", "rebase", "beam", "dvts"] = "ets"
    """How paths are kept: ets, or one of the searches it is compared with."""
    rebase_temperature: float = 0.2
    """T of e^(score/T), by which the width is shared."""
    economy: float = 1.0
    """λ_b: what the whole tree's nodes would cost."""
    cover: float = 1.5
    """λ_d: what covering all meanings is worth; 0 = without the coverage term."""
    cut: float = 0.05
    """Cosine distance up to which steps mean the same."""
    cost: Literal["nodes", "tokens"] = "nodes"
    """What a kept node costs: 1 each, as published and released, or its tokens."""
    meaning: Literal["tokens", "hidden"] = "tokens"
    """How steps are told apart: by their tokens, or by the engine's embeddings."""
    rounds: int = 25
    final: Literal["vote", "best"] = "vote"
    """The answer: most value in all, or the single best leaf's."""

    def build(self) -> Parts:
        """A step search; group credit and the clipped surrogate for those who train on it."""
        check_group("ets", self.width)
        search = StepSearch(
            self.width, self.step, self.delimiter, Confidence(self.scorer), self.select, self.rebase_temperature,
            self.economy, self.cover, self.cut, self.cost, self.meaning, self.rounds, self.final,
        )  # fmt: skip
        return Parts("ets", search, load_credit("grpo"), load_objective("clipped"), averaging="sequence")
