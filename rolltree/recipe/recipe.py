"""A recipe: one published method as a composition, with the knobs its paper names.

A recipe's own class is a frozen dataclass of its knobs with a `card` and a `build`; what `build` returns is all a
trainer needs to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

from rolltree.control.plan import Control, Uniform
from rolltree.control.schedule import Schedule
from rolltree.credit.advantage import Credit
from rolltree.credit.fold import Averaging, Multiplicity, Unit
from rolltree.errors import RolltreeError
from rolltree.filter.groups import GroupFilter
from rolltree.filter.lengths import Shaper
from rolltree.generate.strategy import TreeStrategy
from rolltree.recipe.need import Need
from rolltree.replay.buffer import Recall

if TYPE_CHECKING:
    from rolltree.objective.batch import Objective


class RecipeError(RolltreeError):
    """A recipe that cannot be built or does not fit its surroundings; names the parts and the way out."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The smallest honest experiment that could show the mechanism failing."""

    metric: str
    """For training: "pass@1" or "pass@k" at the budget, " area" on the way, a metric of rollouts averaged over the run,
    or one of held-out samples at the budget (`rolltree.compare.names`); for a check the name of its number."""
    baseline: str
    """The recipe it must beat; for a check, what its number is held against."""
    direction: Literal["higher", "lower", "equal"] = "higher"
    least: float = 0.0
    """Smallest effect that counts; for "equal" the largest that does not."""
    task: str = ""
    budget: int = 0
    """Decoded tokens each side may spend."""
    seeds: int = 3
    """Runs of each side; 1 for an exact check, which has no randomness."""
    level: int | None = None
    """Difficulty of the task; None = its default."""
    check: str = ""
    """An exact or simulated check as "module:function" (see `studies.lab.evidence.Check`); "" = train both sides."""
    settings: tuple[str, ...] = ()
    """Knobs of the training runs, written as on the command line of `rolltree compare --set`."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A metric of training steps that tells whether a mechanism acted: it stays at `rest` where it did not."""

    metric: str
    """Its registered name (docs/metrics.md); a step that does not measure it counts as one in which nothing acted."""
    rest: float = 0.0
    least: float = 1e-4
    """How far from rest it must stand to have acted: one token of ten thousand, where it is a share."""
    unit: str = ""
    """What it counts, in words with {} for the sum over a run, as in "{} rollouts pruned"; "" = the metric's mean."""
    why: str = ""
    """What a run in which it never acted lacked."""
    option: str = ""
    """The option of the command line that makes it act."""

    def moved(self, value: float | None) -> bool:
        """Whether a value of the metric shows that the mechanism acted."""
        return value is not None and abs(value - self.rest) > self.least


@dataclass(frozen=True, slots=True)
class Card:
    """Where a method comes from and what it claims."""

    name: str
    title: str
    paper: str
    """arXiv number, or another stable id."""
    year: int
    claim: str
    stages: tuple[str, ...]
    """Of generate, filter, control, replay, credit, objective: where it differs from its baseline."""
    baseline: str | None = None
    evidence: Evidence | None = None
    task: str = ""
    """A task that it runs on as it is, where that of its evidence takes other knobs."""
    options: str = ""
    """What else the command on its page says, as on that task."""
    needs: tuple[Need, ...] = ()
    """What it asks of a run so that it can act: set by default where the run says nothing, else told."""
    counter: Counter | None = None
    """What proves in a run's metrics that the mechanism acted: evidence from runs in which it did not is void."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A further policy that writes in the same trees."""

    model: str = ""
    """A name, a folder or a hub id with the trained model's tokenizer; "" = a copy of the trained model."""
    trained: bool = True
    """Whether it learns too, from what it wrote, with weights and an optimizer of its own; else it stays as it is."""
    bits: int = 0
    """Of a copy that is not trained: it follows the trained model, with weights rounded to so many bits after every
    update (`rolltree.policy.precision`)."""
    writes: bool = True
    """Whether it writes on the paths that are trained on; a judge only reads them, and answers in trees of its own."""

    def __post_init__(self) -> None:
        if self.trained and not self.writes:
            raise RecipeError(
                "a peer that writes on no path has nothing to learn from; let it write, or not be trained"
            )
        if self.bits and (self.trained or self.model):
            raise RecipeError(
                f"a peer of {self.bits} bits follows the trained model; it has no model of its own and is not trained"
            )


@dataclass(frozen=True, slots=True)
class Parts:
    """What a recipe is made of."""

    name: str
    strategy: TreeStrategy
    credit: Credit
    objective: Objective
    averaging: Averaging = "token"
    multiplicity: Multiplicity = "per_leaf"
    unit: Unit = "path"
    """What one sequence is, where the objective has a ratio per sequence."""
    fixed_length: int | None = None
    """Divisor of the averaging "fixed"; None = the run's limit of policy tokens per path."""
    filters: tuple[GroupFilter, ...] = ()
    shapers: tuple[Shaper, ...] = ()
    rounds: int = 1
    """Most rounds of sampling in a step while filters leave it short of prompts."""
    prompts: int | None = None
    """Prompts of a step, where the method decides that; None = as many as the run says."""
    control: Control = field(default_factory=Uniform)
    """Which prompts get how many rollouts, in which arms and rounds: any control goes with any strategy."""
    recall: Recall | None = None
    """Which share of a step's trees comes from earlier steps; None = all are fresh."""
    anchor: int | str = 0
    """Names the policy that the objective's `reference` is: where it changes, the reference becomes the policy of then.
    As long as it stays, so does the reference, from the first policy on."""
    schedule: Schedule | None = None
    """When rollouts start, stop and go on, where that is part of the method; None = one batch after the other."""
    optim: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Overrides of single fields of `rolltree.training.config.Optim`."""
    evaluations: Mapping[str, TreeStrategy] = field(default_factory=dict[str, TreeStrategy])
    """Further ways to answer held-out items, each beside the policy's own: numbers of theirs begin with the name."""
    peers: Mapping[str, Peer] = field(default_factory=dict[str, Peer])
    """Other policies by the actor they write as."""


@runtime_checkable
class Recipe(Protocol):
    """A frozen dataclass of knobs."""

    card: ClassVar[Card]

    def build(self) -> Parts:
        """The composition for these knobs."""
        ...


def check_group(name: str, group: int, least: int = 2) -> None:
    """Refuse a group too small to be compared within."""
    if group < least:
        raise RecipeError(f"{name}: group={group} leaves nothing to compare; give at least {least}")
