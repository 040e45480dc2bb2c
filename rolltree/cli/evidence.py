"""`rolltree evidence`: what the recipes' cards claim, put to the test."""

from __future__ import annotations

from collections.abc import Sequence

from rolltree.cli.common import leading_names, parse
from rolltree.lab.evidence_command import EvidenceConfig, main

ABOUT = """Run the experiment a recipe's card names and store effect, interval and verdict in evidence/NAME.json.

  rolltree evidence grpo            run one
  rolltree evidence --all           run what is missing or made by other code
  rolltree evidence grpo --verify   repeat a seed of what is stored
"""


def run(arguments: Sequence[str]) -> int:
    """Parse and run."""
    names, rest = leading_names(arguments)
    given = ["--names", *names] if names else []
    return main(parse(EvidenceConfig, [*given, *rest], "evidence", ABOUT))
