"""TTI: scaling test-time interaction by a curriculum on the horizon (arXiv 2506.07976)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.horizon import Horizon
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.knobs.varying import Knob
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.replay.buffer import Recall


@dataclass(frozen=True, slots=True)
class Tti:
    """Rollouts of 10 environment steps at first, then 20, then 30; what succeeded is imitated, that of before as well.

    Right answers alone teach, by likelihood and all alike; nothing pushes failures down. Past successes are drawn anew,
    half by how late they came and half by how rare their domain is. Evaluations have the task's whole horizon. Where it
    differs: a step here is one iteration, of which `replay` is drawn from the past and the rest is new (reconstructed:
    the paper draws 512 trajectories from all there are, the newest included); prompts are drawn with all their
    successes, where the paper draws single trajectories; answers given up are wrong here, not a case of their own;
    asking once more before an answer counts is left out, and so is the cut of long trajectories, off in the paper. On
    tasks with fewer steps give a shorter `horizon`. Judge it at equal environment steps (`budget/env_steps`), as its
    evidence does, on small mazes under a tabular policy. There the curriculum loses to the shortest horizon: a walker
    without memory learns the same moves from short walks, and gets more of them; what needs long walks is not there.
    """

    card: ClassVar[Card] = Card(
        "tti", "Curriculum on the horizon", "2506.07976", 2025,
        "best open web agents on WebVoyager and WebArena with open data (Gemma-3-12B)", ("control", "replay"),
        "kat_coder",
        Evidence("goals reached at equal environment steps", "the better of two horizons that stay", "higher", 0.02,
                 seeds=5, check="rolltree_papers.tti.study:tti"),
        task="grid", counter=Counter("rollout/recalled_groups"),
    )  # fmt: skip
    group: int = 8
    horizon: Knob = "10, 20 at 1, 30 at 3"
    """Most environment steps of a rollout, by the step."""
    replay: float = 0.5
    """Share of a step's prompts whose places past ones take."""
    window: int = 1_000
    """Steps after which a success is forgotten; the paper keeps all."""

    @at_start
    def build(self) -> Parts:
        """Independent rollouts of a bounded horizon, the outcome as credit, likelihood, replay of successes."""
        check_group("tti", self.group, 1)
        if round(float(self.horizon)) < 1:
            raise RecipeError(f"tti: horizon={self.horizon} lets no environment answer; give 1 or more")
        return Parts(
            "tti", Independent(self.group), load_credit("raw", right=True), load_objective("reinforce"),
            averaging="sequence", control=Horizon(round(float(self.horizon))),
            recall=Recall(self.replay, self.window, "recent", solved=True) if self.replay else None,
        )  # fmt: skip
