"""What the doctor says: a finding with the numbers behind it, the nodes that show it and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast, get_args

# What addresses a finding: recipes, knobs, corrections and options of commands, each of which exists (a test asks), and
# what is to be done in code of one's own. Never a name that only Python knows.

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


Severity = Literal["note", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = get_args(Severity)
"""note: it was so and is over; warning: beyond the threshold; critical: beyond the second one."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node that shows a finding: the step of its forest (0 outside runs), its tree and its id there."""

    step: int
    tree: str
    node: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A pathology of a run."""

    step: int
    """The step at which it appeared (in a live log: at which that was noticed)."""
    name: str
    severity: Severity
    message: str
    """What is wrong, in words, with the number and its threshold."""
    numbers: Mapping[str, float]
    """What was measured, and the thresholds it was held against."""
    nodes: tuple[Place, ...] = ()
    """Nodes of saved forests that show it; empty where none were saved."""
    fix: str = ""
    """The recipes and knobs that address it."""
    until: int | None = None
    """The last step at which it stood; None while it stands."""
    status: Literal["open", "gone"] = "open"
    """In a live log a line with "gone" ends the finding of that name."""

    def as_json(self) -> dict[str, Any]:
        """A line of findings.jsonl."""
        return asdict(self)


def from_json(line: Mapping[str, Any]) -> Finding:
    """The finding a line of findings.jsonl holds."""
    fields = dict(line)
    nodes = cast("list[dict[str, Any]]", fields.pop("nodes", []))
    if fields.get("severity") not in SEVERITIES:
        raise ValueError(f"severity {fields.get('severity')!r:.80} is none of {', '.join(SEVERITIES)}")
    return Finding(**fields, nodes=tuple(Place(**node) for node in nodes))


@dataclass(frozen=True, slots=True)
class Symptom:
    """What a detector returns; the registry adds its name and fixes."""

    step: int
    severity: Severity
    message: str
    numbers: Mapping[str, float] = field(default_factory=dict[str, float])
    nodes: tuple[Place, ...] = ()
    until: int | None = None
    fixes: tuple[Fix, ...] = ()
    """What addresses this one better than the detector's own; none = those."""
