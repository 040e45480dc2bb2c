"""A detector of one shape: a metric's mean over the last steps stands beyond a threshold."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rolltree.doctor.detector import Detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.fix import Fix
from rolltree.doctor.run import CheckedRun
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.table import Ints

WINDOW = "steps over which the mean is taken"
Show = Callable[[Rollouts, float], Ints]
"""Rows of nodes that show a finding, from rollouts and the threshold."""


@dataclass(frozen=True)
class Level:
    """A metric, its thresholds, and what is said of it."""

    metric: str
    limit: float
    worse: float
    """The second threshold, for critical."""
    says: str
    """The message, with `{value}` and `{limit}`."""
    below: bool = False
    """Whether less is worse."""
    relative: bool = False
    """Whether the metric is taken as a multiple of its mean over the first window."""
    show: Show | None = None

    @property
    def knob(self) -> str:
        """The name of the first threshold."""
        return "least" if self.below else "most"

    @property
    def thresholds(self) -> dict[str, float]:
        """The stated thresholds by knob."""
        return {self.knob: self.limit, "worse": self.worse, "window": 10}

    def __call__(self, run: CheckedRun, **given: float) -> Iterator[Symptom]:
        """Look at a run, with some thresholds replaced."""
        use = {**self.thresholds, **given}
        limit, worse, window = use[self.knob], use["worse"], int(use["window"])
        seen = run.series(self.metric)
        seen = seen.relative(window) if self.relative else seen
        spell = seen.beyond(limit, worse, window, below=self.below)
        if spell is None:
            return
        show = self.show
        nodes = () if show is None else run.show(spell, lambda r: show(r, limit))
        name = f"{self.metric}.relative" if self.relative else self.metric
        yield Symptom(
            spell.start, spell.severity, self.says.format(value=spell.value, limit=limit),
            {name: spell.value, self.knob: limit, "worse": worse}, nodes, spell.until,
        )  # fmt: skip


def level(
    name: str, about: str, look: Level, *, limit: str, fixes: tuple[Fix, ...], why: str, also: tuple[str, ...] = ()
) -> Detector:
    """The detector of a level. `limit` says what the first threshold is, `why` where the idea comes from."""
    knobs: Mapping[str, str] = {look.knob: limit, "worse": "the same, for critical", "window": WINDOW}
    return Detector(name, about, (look.metric, *also), fixes, knobs, look, look.thresholds, why)
