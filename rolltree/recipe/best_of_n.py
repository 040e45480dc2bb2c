"""Best of n and self-consistency (arXiv 2203.11171): independent answers and a choice among them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.generate.search.bestof import BestOf
from rolltree.generate.search.steps import judge_of
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class BestOfN:
    """Independent answers with a frozen policy; the most frequent one, or that of the most promising rollout.

    The baseline of every search: `rolltree compare … --frozen` sets it beside whatever is compared, as majority and as
    most confident, with as many rollouts as the same tokens buy. `final="weighted"` votes with the judge's values.
    """

    card: ClassVar[Card] = Card(
        "best_of_n", "Best of n and self-consistency", "2203.11171", 2022,
        "17.9 points on GSM8K over greedy decoding by the majority of sampled answers", ("control",), "grpo",
        Evidence("accuracy", "a random one of the same answers", "higher", 0.02, seeds=5,
                 check="studies.search.frozen:best_of_n"),
        counter=Counter("rollout/group_size"),
    )  # fmt: skip
    n: int = 8
    """Most rollouts; fewer where the budget of tokens ends before."""
    final: Literal["majority", "weighted", "best"] = "majority"
    """The answer: most frequent, most value in all, or the single best leaf's."""
    worth: str = "path"
    """What a rollout is worth: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    wave: int = 4
    """Rollouts under way at once: the budget is spent to within so many of them."""

    def build(self) -> Parts:
        """Waves of independent rollouts."""
        check_group("best_of_n", self.n, least=1)
        return search_parts("best_of_n", BestOf(self.n, self.final, judge_of(self.worth), self.wave))
