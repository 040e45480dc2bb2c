"""Runs of studies: kept in the repository with the simulated seconds of their schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rolltree.compare.runner import Spec
from rolltree.compare.trace import Trace
from studies.lab.kept import KeptShelf
from studies.simulated import simulated
from studies.table_runs import SIMULATED


@dataclass(frozen=True)
class StudyShelf(KeptShelf):
    """A shelf of kept runs that also keeps how long they would take on the cluster of the virtual clock."""

    def beside(self, spec: Spec, made: Trace) -> Mapping[str, float]:
        """Simulated seconds, where the run tells its lengths."""
        took = made.total(SIMULATED) or simulated(made, spec, self.runner)
        return {} if took is None else {SIMULATED: took}
