"""Tree of thoughts: depth first or best first over steps (arXiv 2305.10601)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.generate.search.steps import StepTree, judge_of
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class Tot:
    """Thoughts are steps: depth first with a threshold below which a path is given up, or a queue over all nodes.

    The paper's breadth-first variant keeps the b best of a layer; that is `ets --select beam`. Its value prompts are a
    judge here, by default the policy's confidence (reconstructed).
    """

    card: ClassVar[Card] = Card(
        "tot", "Tree of thoughts", "2305.10601", 2023,
        "74 % on the game of 24 against 4 % by chains of thought (GPT-4)", ("generate", "control"), "best_of_n",
        Evidence("accuracy", "as many rollouts as the tokens buy, chosen among by the verifier too",
                 check="studies.search.frozen:tot", seeds=6),
        counter=Counter("rollout/births/boundary"),
    )  # fmt: skip
    turns: int = 24
    """Expansions."""
    ways: int = 3
    """Steps tried at a node."""
    order: Literal["depth", "best"] = "depth"
    """Depth first, or the most promising node anywhere."""
    threshold: float = 0.2
    """Below it a path is given up (depth first)."""
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing."""
    worth: str = "verifier"
    """What a path is worth: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    answers: int = 4
    """Stop at so many finished paths."""
    final: Literal["vote", "best"] = "best"
    """The answer: most value in all, or the single best leaf's."""

    def build(self) -> Parts:
        """A stack or a queue."""
        if self.order not in ("depth", "best"):
            raise RecipeError(f"tot: order={self.order!r} is neither 'depth' nor 'best'")
        tree = StepTree(
            self.turns, self.ways, "stack" if self.order == "depth" else "best", self.step, self.delimiter,
            judge_of(self.worth), threshold=self.threshold, answers=self.answers, final=self.final,
        )  # fmt: skip
        return search_parts("tot", tree)
