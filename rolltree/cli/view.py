"""`rolltree view`: look at runs, trees and tokens in the browser."""

from __future__ import annotations

from collections.abc import Sequence

from rolltree.cli.common import leading_names, parse
from rolltree.view.server import ViewConfig, serve

ABOUT = """Look at runs, trees and tokens in the browser; pages follow a run that is still training.

  rolltree view runs/first
  rolltree view runs/grpo runs/treepo            side by side
  rolltree view nodes.jsonl --model nano         nodes of another program
  rolltree view runs/first --host 0.0.0.0        for others, with a token
"""


def run(arguments: Sequence[str]) -> int:
    """Parse and serve until interrupted."""
    names, rest = leading_names(arguments)
    given = ["--runs", *names] if names else []
    return serve(parse(ViewConfig, [*given, *rest], "view", ABOUT))
