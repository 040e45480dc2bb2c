"""Recipes by name: `load_recipe("grpo", group=8)`."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, cast

from rolltree.knobs.values import checked_knobs
from rolltree.recipe.need import Need
from rolltree.recipe.recipe import Card, Counter, Recipe, RecipeError
from rolltree.recipe.swap import SWAPS, Swapped
from rolltree.registry import Modules, Registry, check_knobs, in_file

# Names that no knob of a recipe has, because an option of the command line has them.
#
# `rolltree train`, `rollout` and `solve` show a recipe's knobs beside their own options, under their bare names.

OPTIONS = frozenset({
    "agent", "answer", "at_once", "betas", "chat", "chat_template", "checkpoint_every", "clip_norm",
    "cluster", "cluster_engines",
    "cluster_workers", "control", "decoded", "device", "doctor", "dtype", "end_items", "engine", "engine_precision",
    "epochs", "eps", "eval_every", "eval_items", "eval_samples", "fallback", "forests_every", "full_prompt",
    "gradient_checkpointing", "gradient_noise", "held", "help", "holdout", "item_tokens", "items", "items_from", "json",
    "jsonl", "keep_checkpoints", "level", "log_entropy", "lora", "loss_limit", "lr", "lr_floor", "lr_schedule",
    "lr_updates", "max_tokens", "mcp", "minibatch_prompts", "minibatches", "mismatch_limit", "mismatch_share",
    "no_log_entropy", "no_trees", "optim", "out", "piece", "policy", "prompt", "prompts", "proximal_decay", "ranks",
    "resume", "reward", "role", "run_tokens", "scheduler", "seconds", "seed", "show", "solved_at", "speculate",
    "staleness", "steps", "system", "task", "temperature", "think", "threads", "token_budget", "tool", "top_p",
    "trackers", "train_precision", "trees", "trust_remote_code", "use_answers", "use_credit", "use_objective", "warmup",
    "weight_decay",
})  # fmt: skip
"""The options of the three verbs together; a test holds them against the verbs."""


def check_names(name: str, recipe: type[Any]) -> None:
    """Refuse a recipe with a knob that has the name of an option."""
    taken = [field.name for field in fields(recipe) if field.init and field.name in OPTIONS]
    if taken:
        raise RecipeError(
            f"the recipe {name!r} has a knob {taken[0]!r}, and the command line has an option of that name "
            f"(--{taken[0].replace('_', '-')}); call the knob something else"
        )


def _recipe(value: Any) -> tuple[str, type[Recipe]] | None:
    card = getattr(value, "card", None)
    if isinstance(value, type) and isinstance(card, Card) and is_dataclass(value):
        return card.name, cast(type[Recipe], value)
    return None


class Recipes(Registry[type[Recipe]]):
    """The registry of recipes: one whose knobs could not stand on a command line is refused."""

    def find(self, name: str) -> type[Recipe]:
        """The class of that name; an unknown name is refused with the nearest known."""
        found = super().find(name)
        check_names(name, found)
        return found


RECIPES = Recipes(
    "recipe",
    "rolltree.recipes",
    Modules(_recipe, "rolltree.recipe"),
    _recipe,
    hint="rolltree recipes describes them",
)
"""Classes of recipes: dataclasses with a card."""


def recipes() -> dict[str, type[Recipe]]:
    """Every recipe's class by name."""
    return RECIPES.all()


def counter_of(name: str) -> Counter | None:
    """The counter on a recipe's card; None where it has none or nobody knows the recipe."""
    known = in_file(name) or name in recipes()
    return RECIPES.find(name).card.counter if known else None


def needs_of(name: str) -> tuple[Need, ...]:
    """What a recipe needs of its run; nothing where nobody knows the recipe."""
    known = in_file(name) or name in recipes()
    return RECIPES.find(name).card.needs if known else ()


def list_recipes() -> list[Card]:
    """The cards of all recipes, by name."""
    return [recipe.card for recipe in recipes().values()]


def knobs_of(name: str) -> dict[str, Any]:
    """A recipe's knobs with their defaults."""
    return {f.name: f.default for f in fields(RECIPES.find(name)) if f.init}  # pyright: ignore[reportArgumentType]


def load_recipe(name: str, /, **knobs: Any) -> Recipe:
    """Make a recipe by name; an unknown name or knob is refused with the nearest known one.

    Beside its own knobs every recipe has those of `rolltree.recipe.swap`.
    """
    made = RECIPES.find(name)
    check_knobs(f"recipe {name!r}", (knob for knob in knobs if knob not in SWAPS), [*knobs_of(name), *SWAPS])
    plain = {knob: value for knob, value in knobs.items() if knob not in SWAPS}
    own = made(**checked_knobs(f"recipe {name!r}: ", made, plain, varies=True))
    swaps = {knob: value for knob, value in knobs.items() if knob in SWAPS}
    return cast(Recipe, Swapped(own, **swaps)) if swaps else own
