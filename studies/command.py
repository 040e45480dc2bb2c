"""Studies as commands, with the help, the sentences and the exit codes of `rolltree`.

They are `python -m studies.NAME`, or `python -m rolltree_papers.PAPER.study` for the study of one paper.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from rolltree.cli import answered
from rolltree.cli.common import parse

T = TypeVar("T")


def run_study(
    name: str, shape: type[T], main: Callable[[T], object], about: str | None, arguments: Sequence[str] | None = None
) -> int:  # fmt: skip
    """Read the arguments and run the study: 0, or 2 with one sentence about what was wrong, or 130 after Ctrl-C."""
    given = sys.argv[1:] if arguments is None else list(arguments)

    module = name if name.startswith("rolltree_papers.") else f"studies.{name}"

    def act() -> int:
        main(parse(shape, given, module, about or "", program="python -m"))
        return 0

    return answered(module, act)
