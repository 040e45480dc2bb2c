"""The rollout metrics of a step: families of them, each a function of the rollouts whose numbers it names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rolltree.metrics.policy import entropy, partial_rollouts, prefix, replayed, staleness, weights
from rolltree.metrics.registry import find
from rolltree.metrics.reward import groups, judge, outcomes, parts, verdicts, vote, waves
from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.metrics.shape import branches, copies, lengths, masked, sharing, tools, trees
from rolltree.metrics.usage import failures, lost_tokens, timing, unfinished_rollouts, usage
from rolltree.tree import Tree
from rolltree.tree.table import table

Family = Callable[[Rollouts], Numbers]
GROWN: tuple[Family, ...] = (outcomes, trees, lost_tokens, waves)
"""Of everything that was grown in a step, before anything is trained."""
TRAINED: tuple[Family, ...] = (
    parts, groups, branches, sharing, copies, lengths, failures, unfinished_rollouts, verdicts, vote, judge, tools,
    masked, replayed, partial_rollouts, prefix, timing,
)  # fmt: skip
"""Of the batch that was trained, once it is known what became of each leaf."""
FROM_FORESTS: tuple[Family, ...] = (staleness, weights, entropy)
"""What training measures itself, and saved forests can tell where there is no log."""
BY_WHERE: Mapping[str, Family] = {
    f"{f.__module__.removeprefix('rolltree.')}:{f.__name__}": f for f in (*GROWN, *TRAINED, *FROM_FORESTS)
} | {"training.backward:backward": entropy}


def family_of(name: str) -> Family | None:
    """The function that computes a metric from rollouts alone; None where rollouts cannot tell it."""
    metric = find(name)
    return None if metric is None else BY_WHERE.get(metric.where)


def grown_metrics(grown: Iterable[Tree]) -> Numbers:
    """Metrics of the trees that a step grew."""
    return _of(GROWN, Rollouts(table(grown)))


def trained_metrics(batch: Iterable[Tree], version: int) -> Numbers:
    """Metrics of a batch that was trained by weights of this version. Raises if a leaf was lost."""
    batch = list(batch)
    return usage(batch) | _of(TRAINED, Rollouts(table(batch), version))


def _of(families: tuple[Family, ...], rollouts: Rollouts) -> Numbers:
    out: Numbers = {}
    for family in families:
        out |= family(rollouts)
    return out
