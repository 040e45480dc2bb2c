"""`rolltree card`: how a run's rollouts were made."""

from __future__ import annotations

from collections.abc import Sequence

from rolltree.cli.common import first_name, parse
from rolltree.compare.card import CardConfig, main
from rolltree.errors import RolltreeError

ABOUT = """State how a run's rollouts were made and how they differ from plain sampling, to attach to a paper.

  rolltree card runs/first
  rolltree card runs/mine --recipe mine.py:R    a recipe of your own
  rolltree card nodes.jsonl --json
"""


def run(arguments: Sequence[str]) -> int:
    """Parse and write the card."""
    name, rest = first_name(arguments)
    if name is None and not any(word.startswith(("-h", "--help", "--run")) for word in rest):
        raise RolltreeError("which run? rolltree card RUN; give a run folder, a folder of forests or a file of nodes")
    given = ["--run", name] if name else []
    return main(parse(CardConfig, [*given, *rest], "card", ABOUT))
