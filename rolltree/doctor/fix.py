"""What addresses a finding: recipes, knobs, corrections and options of commands, each of which exists (a test asks),
and what is to be done in code of one's own. Never a name that only Python knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

Kind = Literal["recipe", "knob", "run", "serve", "agent", "correction", "work"]


@dataclass(frozen=True, slots=True)
class Fix:
    """A suggested fix: one thing to change, and what that does."""

    kind: Kind
    name: str
    does: str

    def __str__(self) -> str:
        if self.kind == "work":
            return self.does
        name = self.name.replace("_", "-") if self.kind in ("run", "serve") else self.name
        return f"{_SHOWN[self.kind].format(name)} ({self.does})"


_SHOWN = {
    "recipe": "recipe {}", "knob": "knob {}", "run": "--{}", "serve": "serve --{}", "agent": '--agent "COMMAND?{}=…"',
    "correction": "correction {}",
}  # fmt: skip


def recipe(name: str, does: str) -> Fix:
    """A recipe that treats the cause."""
    return Fix("recipe", name, does)


def knob(name: str, does: str) -> Fix:
    """A recipe's knob, as "recipe.knob"."""
    return Fix("knob", name, does)


def option(name: str, does: str) -> Fix:
    """An option of `rolltree train`: a field of `TrainConfig`, `Optim` or the command's own."""
    return Fix("run", name, does)


def correction(name: str, does: str) -> Fix:
    """An off-policy correction: `load_objective(..., correction=name)`."""
    return Fix("correction", name, does)


def serving(name: str, does: str) -> Fix:
    """An option of `rolltree serve`."""
    return Fix("serve", name, does)


def agent(name: str, does: str) -> Fix:
    """A knob behind the command of an agent."""
    return Fix("agent", name, does)


def work(does: str) -> Fix:
    """What is to be done in code of one's own: a task, a reward, an environment."""
    return Fix("work", "", does)


def offered(fixes: Iterable[Fix], settings: Mapping[str, Any]) -> list[str]:
    """What of some fixes the run can use, in words: its own recipe is no news, and of knobs only those it has.

    `settings` is the run's config.json; where a run has none, nothing is known of it and all are offered.
    """
    recipe: Any = settings.get("recipe")
    while isinstance(recipe, Mapping) and "inner" in recipe:
        recipe = cast("Mapping[str, Any]", recipe)["inner"]
    if not isinstance(recipe, Mapping):
        return list(map(str, fixes))
    own, name = cast("Mapping[str, Any]", recipe), settings.get("parts", {}).get("name")
    out: list[str] = []
    for fix in fixes:
        if fix.kind == "knob":
            option = fix.name.partition(".")[2]
            if option in own:
                out.append(f"--{option.replace('_', '-')}, now {own[option]} ({fix.does})")
        elif (fix.kind, fix.name) != ("recipe", name):
            out.append(str(fix))
    return out
