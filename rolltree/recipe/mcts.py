"""MCTS over steps (MedS³'s search, arXiv 2501.12051)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.generate.search.backup import Backup, Blend, MeanBackup
from rolltree.generate.search.steps import StepTree, judge_of
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class Mcts:
    """UCT over steps with a frozen policy: expand the best-looking node, value what came, tell it upwards.

    A node is worth the mean of `rollouts` completions from it (their number does not fall with depth, as MedS³'s does),
    or the judge's opinion of it with `rollouts=0`. `backup="comp"` is MedS³'s released rule, which keeps half of a
    first, noisy estimate for ever. Its Reflect action is no part of it, and its PRM is a head fitted on the labels of
    `step_labels`. Constants beside c are ours (reconstructed).
    """

    card: ClassVar[Card] = Card(
        "mcts", "Monte Carlo tree search over steps", "2501.12051", 2025,
        "+2 points over prior open models on 11 medical sets by self-evolved search, about 13 with PRM selection",
        ("generate", "control"), "best_of_n",
        Evidence("accuracy", "the better of majority and most confident at equal tokens",
                 check="studies.search.frozen:mcts", seeds=6),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    turns: int = 16
    """Expansions."""
    ways: int = 3
    """Steps tried at a node."""
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing."""
    worth: str = "path"
    """What a path is worth: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    rollouts: int = 1
    """Completions from every new node; 0 = the judge's opinion of the node itself."""
    exploration: float = 2.0
    """c of UCT."""
    backup: Literal["mean", "children", "comp"] = "mean"
    """Mean of all results; weighted mean of the children; or half way from the old value to it (MedS³'s "comp")."""
    stop: bool = True
    """Whether it ends, and saves tokens, at an answer that the verifier calls right (`worth="verifier"` alone)."""
    workers: int = 1
    """Expansions under way at once."""
    final: Literal["vote", "best"] = "vote"
    """The answer: most value in all, or the single best leaf's."""

    def build(self) -> Parts:
        """A UCT descent over steps."""
        rules: dict[str, Backup] = {"mean": MeanBackup(), "children": Blend(1.0), "comp": Blend(0.5)}
        if self.backup not in rules:
            raise RecipeError(f"mcts: backup={self.backup!r} is none of {', '.join(rules)}")
        tree = StepTree(
            self.turns, self.ways, "uct", self.step, self.delimiter, judge_of(self.worth), self.rollouts,
            self.exploration, enough=1.0 if self.stop and self.worth == "verifier" else None, workers=self.workers,
            backup=rules[self.backup], final=self.final,
        )  # fmt: skip
        return search_parts("mcts", tree)
