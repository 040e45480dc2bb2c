"""`rolltree budget`: where a run's tokens went."""

from __future__ import annotations

from collections.abc import Sequence

from rolltree.cli.common import at_least, first_name, parse
from rolltree.compare.budget import BudgetConfig, main
from rolltree.errors import RolltreeError

ABOUT = """Say where a run's tokens went: by difficulty and prompt, on groups without variance, pruned, carried over.

  rolltree budget runs/first
  rolltree budget runs/first --top 30 --out budget.html
"""


def run(arguments: Sequence[str]) -> int:
    """Parse and print."""
    name, rest = first_name(arguments)
    if name is None and not any(word.startswith(("-h", "--help", "--run")) for word in rest):
        raise RolltreeError("which run? rolltree budget RUN; give a run folder")
    given = ["--run", name] if name else []
    asked = parse(BudgetConfig, [*given, *rest], "budget", ABOUT)
    at_least(0, top=asked.top)
    return main(asked)
