"""Every recipe and every schedule as a run of a few seconds, and what is promised when it is killed and resumed."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from rolltree.control.schedule.presets import PRESETS
from rolltree.recipe.registry import list_recipes, load_recipe
from rolltree.task.protocol import Item, Verdict
from tests.train.long import Tail
from tests.train.toy import KNOBS, Early, Talk

SHORT: dict[str, Any] = {**KNOBS, "steps": 3, "prompts": 3, "eval_items": 3}
OVERLAPS = ("areal", "verl", "slime", "rollart", "dart")
"""Under these rollouts overlap with training: a run goes on, and what it draws next is a matter of timing."""
SMALL: dict[str, dict[str, Any]] = {
    "a2fm": {"tags": ()},
    "aepo": {"leaves": 6, "first": 3},
    "arpo": {"leaves": 6, "first": 3},
    "brpo": {"group": 4, "judge": "measured"},
    "cleaner": {"group": 4},
    "echo": {"leaves": 6, "stems": 3, "entropy": 0.87, "confidence": 0.95, "rise": 0.001, "chunk": 2},
    "ets": {"width": 4, "step": 2, "delimiter": ""},
    "ettrl": {"stems": 2},
    "hiper": {"subgoals": "paid"},
    "himac": {"plans": 2, "executions": 2, "phase": "macro"},
    "latr": {"leaves": 6, "absolute": 0.03, "relative": 0.5, "ages": (3,), "chunk": 4},
    "mars2": {"nodes": 4, "again": "{answer}="},
    "metaagent_x": {"designs": 2, "executions": 2},
    "poly_ppo": {"rollouts": 3, "vines": 3, "size": 2},
    "portool": {"leaves": 6, "ways": 2},
    "reex_sql": {"group": 6, "exact": 0, "entities": 0},
    "rose": {"leaves": 8, "top": 5, "values": "position"},
    "treepo": {"leaves": 6, "segment": 3},
    "treeps_rag": {"leaves": 6, "ways": 3, "width": 2},
    "ui_s1": {"group": 4},
}
"""Knobs that make the trees of recipes small."""


PARTS = ("steps", "keys", "types", "values", "parses", "rules", "render", "content")
"""What the verdicts that recipes read say in parts."""


@dataclass(frozen=True)
class Parted(Early):
    """As its parent, with an answer that rollouts can agree on and a verdict in parts."""

    async def verify(self, item: Item, state: object, text: str) -> Verdict:
        """Right or wrong, and how."""
        score = (await super().verify(item, state, text)).score
        return Verdict(score, dict.fromkeys(PARTS, score), answer=str(score))


@dataclass(frozen=True, slots=True)
class Resumable:
    """A run that may be killed: what it is of, and whether it is promised to come back to the same numbers."""

    recipe: str
    task: Early
    exact: bool
    recipe_knobs: dict[str, Any] = field(default_factory=dict[str, Any])
    knobs: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def title(self) -> str:
        """For people."""
        return " ".join([self.recipe, self.task.name, *(f"{k}={v}" for k, v in self.knobs.items())])


@cache
def recipe_names() -> tuple[str, ...]:
    """All recipes that are built in."""
    return tuple(card.name for card in list_recipes())


def of_recipe(name: str, *, seed: int = 0, staleness: int = 0) -> Resumable:
    """A recipe, on dialogues where it needs them."""
    small = SMALL.get(name, {})
    parts = load_recipe(name, **small).build()
    turns = "turns" in parts.strategy.needs
    ahead = staleness if parts.schedule is None and not parts.peers else 0  # a schedule of its own says how far
    return Resumable(name, Talk() if turns else Parted(), True, small, {"seed": seed, "staleness": ahead})


def of_schedule(name: str, *, recipe: str = "grpo", seed: int = 0) -> Resumable:
    """A schedule, on answers of very different lengths."""
    knobs = {"scheduler": name, "seed": seed}
    return Resumable(recipe, Tail(), name not in OVERLAPS, SMALL.get(recipe, {}), knobs)


SCHEDULES = tuple(PRESETS)
