"""Whether a recipe's mechanism acted in a run: what its card's counter says, in one line.

The trainer says it at the end of a run, `rollout`, `solve` and `compare` at theirs, the viewer and the doctor of any
run that they look at. All of them ask here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from rolltree.generate.roles import is_side
from rolltree.metrics.registry import find, value_in
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.step import family_of
from rolltree.recipe.recipe import Card, Counter
from rolltree.tree import Tree
from rolltree.tree.table import table

CONFIGURED = "counter"
"""Where config.json has the recipe's counter."""
ROLE = "budget/role/"
MEANS = ("share", "number", "nats", "points", "versions")
"""Units of metrics whose mean says more than their sum."""

LEVEL = "choose a level at which some answers are right and some wrong (--level)"
LONGER = "give it longer rollouts (--max-tokens), more of them (--group) or more --steps"
AGAIN = "give more --steps and prompts that come back (--items 256)"
WAYS: Mapping[str, tuple[str, str]] = {
    "policy/clip": ("no ratio left its bounds", "give a step more updates (--minibatches 4) or a larger --lr"),
    "policy/ratio": ("no ratio left its bounds", "give a step more updates (--minibatches 4) or a larger --lr"),
    "policy/is_weight": ("the policy that sampled is the one in training", "give --scheduler areal or --staleness 4"),
    "policy/rejected": ("the policy that sampled is the one in training", "give --scheduler areal or --staleness 4"),
    "policy/prefix": ("the policy that sampled is the one in training", "give --scheduler areal or --staleness 4"),
    "optim/step_factor": ("the policy that sampled is the one in training", "give --scheduler areal or --staleness 4"),
    "policy/bounds": ("no bound moved", LEVEL),
    "policy/credit_apart": ("its advantages are those of GRPO up to scale", LEVEL),
    "policy/": ("its objective did what the baseline's does", LEVEL),
    "rollout/group_size": ("every prompt got as many rollouts", AGAIN),
    "rollout/births/": ("no rollout forked so", LONGER),
    "rollout/pruned/": ("no rollout was cut", LONGER),
    "rollout/dropped": ("nothing was dropped", LEVEL),
    "rollout/recalled": ("no earlier rollout was recalled", "give more --steps"),
    "rollout/partial": ("no rollout went on under other weights", "give longer rollouts (--max-tokens)"),
    "rollout/": ("its rollouts are those of its baseline", LONGER),
    "optim/": ("its updates are those of its baseline", "give more --steps, --epochs or --minibatches"),
    "budget/arm/": ("no rollout was ordered in that arm", AGAIN),
    "budget/role/": ("that role was never asked", LONGER),
    "budget/revisited": ("no prompt came back", AGAIN),
    "budget/": ("nothing was counted", AGAIN),
    "reward/": (
        "no reward was changed",
        "choose a task and a policy whose answers differ in what it reads (--task)",
    ),
}
"""What a run lacked and the way out, by how a counter's name begins; a card may know better."""


@dataclass(frozen=True, slots=True)
class Acted:
    """What a counter said over a run."""

    recipe: str
    counter: Counter
    looked: int
    """Steps that were looked at, or prompts."""
    acted: int
    """In how many of them it had moved."""
    moved: float
    """By how much in all."""
    over: str = "steps"

    def __str__(self) -> str:
        if self.acted:
            return f"{self.recipe} acted in {self.acted} of {self.looked} {self.over} ({self._amount()})"
        usual = next((way for begin, way in WAYS.items() if self.counter.metric.startswith(begin)), ("", ""))
        why = self.counter.why or usual[0] or "nothing moved"
        way = self.counter.option or usual[1] or f"rolltree recipes {self.recipe} says when it does"
        still = f"{self.counter.metric} {self.counter.rest:g} in {self.looked} of {self.looked} {self.over}"
        return f"{self.recipe} never acted: {why} ({still}); {way}"

    def _amount(self) -> str:
        c, known = self.counter, find(self.counter.metric)
        if c.unit:
            return c.unit.replace("{}", f"{self.moved:,.0f}")
        if known is None or known.unit in MEANS or c.rest:
            return f"{c.metric} {c.rest + self.moved / self.looked:.3g} on average"
        return f"{c.metric}: {self.moved:,.0f} {known.unit}"

    def as_json(self) -> dict[str, Any]:
        """As it stands in a run's files."""
        return {"said": str(self), "recipe": self.recipe, "metric": self.counter.metric, "acted_in": self.acted,
                "of": self.looked, "over": self.over}  # fmt: skip


def acted(recipe: str, counter: Counter, values: Iterable[float | None], over: str = "steps") -> Acted | None:
    """What a counter's values say; None where there are none. A value that was not measured is one at rest."""
    seen = [counter.rest if value is None else float(value) for value in values]
    if not seen:
        return None
    moved = [value for value in seen if counter.moved(value)]
    return Acted(recipe, counter, len(seen), len(moved), sum(value - counter.rest for value in moved), over)


def configured(card: Card | None) -> dict[str, Any] | None:
    """A card's counter as config.json has it, so that a run is read by the card it was made with."""
    return None if card is None or card.counter is None else {"recipe": card.name, **asdict(card.counter)}


def acted_in(settings: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> Acted | None:
    """The same of a run, from its config.json and its lines; None where the run was written without a counter."""
    told: Any = settings.get(CONFIGURED)
    if not isinstance(told, dict):
        return None
    given = dict(cast("dict[str, Any]", told))
    recipe = str(given.pop("recipe", ""))
    try:
        texts = {name: str(given.get(name, "")) for name in ("metric", "unit", "why", "option")}
        counter = Counter(**texts, rest=float(given.get("rest", 0.0)), least=float(given.get("least", 0.0)))
        return acted(recipe, counter, (value_in(line, counter.metric) for line in lines if line["kind"] == "train"))
    except (TypeError, ValueError):  # a stranger's file
        return None


def acted_on(card: Card, prompts: Iterable[Iterable[Tree]]) -> Acted | None:
    """The same of rollouts that nobody trains on, by prompt: trees of the rollouts and those of roles beside them.

    None where only training tells: objectives, credits, controls and rewards that are shaped.
    """
    if card.counter is None or not told_by_rollouts(card.counter):
        return None
    return acted(card.name, card.counter, (value_on(card.counter, trees) for trees in prompts), "prompts")


def by_prompt(forest: Iterable[Tree]) -> list[list[Tree]]:
    """The trees of each prompt, those of roles beside it among them."""
    found: dict[str, list[Tree]] = {}
    for tree in forest:
        found.setdefault(tree.item, []).append(tree)
    return [trees for trees in found.values() if not all(map(is_side, trees))]


def told_by_rollouts(counter: Counter) -> bool:
    """Whether a counter can be read off rollouts alone."""
    return family_of(counter.metric) is not None or counter.metric.startswith(ROLE)


def value_on(counter: Counter, trees: Iterable[Tree]) -> float | None:
    """A counter of one prompt's trees."""
    trees = list(trees)
    if counter.metric.startswith(ROLE):
        role = counter.metric.removeprefix(ROLE)
        return float(sum(len(node.actions) for tree in trees for node in tree if tree.notes.get("role") == role))
    family, main = family_of(counter.metric), [tree for tree in trees if not is_side(tree)]
    return family(Rollouts(table(main))).get(counter.metric) if family is not None and main else None
