"""Metrics that comparisons are about: one may be asked for by the last part of its name.

pass@1        eval/pass@1
length        rollout/length
eval/length   what held-out samples are long, as its name says
"""

from __future__ import annotations

from rolltree.metrics.registry import metric_of

COMPARED = (
    "reward/mean", "reward/solved", "reward/zero_variance", "rollout/truncated", "rollout/failed", "rollout/length",
    "rollout/sharing", "rollout/unique", "policy/entropy",
)  # fmt: skip
"""Metrics of training rollouts, averaged over a run."""
HELD_OUT = ("eval/length",)
"""Metrics of held-out samples beside pass@k, which stand at evaluations."""
PER_LEAF = ("budget/decoded_per_leaf", "budget/env_steps_per_leaf")
"""What a rollout costs; branches share what stands above them."""
COSTS = (
    "budget/decoded", "budget/prefilled", "budget/env_steps", "budget/judge_calls", "optim/updates", "budget/trained",
    "budget/flops", "time/processor", "budget/groups", "budget/leaves",
)  # fmt: skip
"""What a run costs, summed over its steps. Runs that are equal in what a budget counts may differ in the others."""


def cost_name(name: str) -> str:
    """What a table calls a cost."""
    words = {"budget/groups": "prompts", "budget/leaves": "rollouts", "time/processor": "processor seconds",
             "time/simulated": "simulated seconds"}  # fmt: skip
    return words.get(name, name.rpartition("/")[2].replace("_", " "))


_WHOLE = {name.rpartition("/")[2]: name for name in (*COMPARED, *PER_LEAF)}


def row_name(asked: str) -> str:
    """The whole name of a metric, as the rows of a trace have it; a name that is none stays."""
    return f"eval/{asked}" if asked.startswith("pass@") else _WHOLE.get(asked, asked)


def short_names() -> list[str]:
    """What the metrics of rollouts may be asked for as."""
    return list(_WHOLE)


def held_out(asked: str) -> bool:
    """Whether a metric is measured on held-out items, at evaluations; the others are of the training rollouts."""
    return row_name(asked).startswith("eval/pass@") or asked in HELD_OUT


def of_rollouts(asked: str) -> bool:
    """Whether it is a metric of training rollouts that comparisons know."""
    return row_name(asked) in _WHOLE.values()


def is_share(asked: str) -> bool:
    """Whether a metric lies between 0 and 1."""
    name = row_name(asked)
    return name.startswith("eval/pass@") or (of_rollouts(asked) and metric_of(name).unit == "share")


def less_is_better(asked: str) -> bool:
    """Whether less of it is better; a comparison takes more of any other metric for a gain."""
    return of_rollouts(asked) and metric_of(row_name(asked)).better == "lower"
