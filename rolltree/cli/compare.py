"""`rolltree compare`: recipes side by side at an equal budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, make_dataclass, replace
from typing import Any

from rolltree.cli.common import leading_names, parse
from rolltree.compare.compare import CompareConfig, main
from rolltree.errors import RolltreeError
from rolltree.task.data.flags import DataFlags

ABOUT = """Train recipes from the same policy on the same prompts and seeds until the same budget is spent, and compare.

  rolltree compare grpo rloo --task countdown --budget 300k --seeds 5
  rolltree compare grpo --sweep group=4,8,16 --budget 200k
  rolltree compare grpo dapo --set dapo:clip_high=0.3 --set optim.lr=2e-4
  rolltree compare ets mcts --frozen --task countdown --budget 32k

The first recipe is the baseline. With --frozen nothing is trained: recipes are ways to answer, the budget is tokens
over all roles, and majority and most confident stand beside them. Finished runs are kept and found again, so an
interrupted comparison goes on.
"""


def run(arguments: Sequence[str]) -> int:
    """Parse and compare."""
    names, rest = leading_names(arguments)
    if not names and not {"-h", "--help"} & set(rest):
        raise RolltreeError("which recipes? rolltree compare grpo rloo ...; the first is the baseline")
    given = ["--recipes", *names] if names else []
    shape = make_dataclass(
        "CompareArguments", [("compare", CompareConfig), ("data", DataFlags, field(default_factory=DataFlags))],
        frozen=True,
    )  # fmt: skip
    asked: Any = parse(shape, [*given, *rest], "compare", ABOUT)
    config: CompareConfig = asked.compare
    return main(replace(config, task=asked.data.address(config.task)))
