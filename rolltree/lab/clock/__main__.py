"""Run all studies and write the page: `python -m rolltree.lab.clock [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

from rolltree.lab.clock.page import write_page
from rolltree.lab.clock.study import agents, regimes, sizes


def main(folder: Path = Path("docs/measured")) -> None:
    """Everything; about a minute of processor time."""

    def say(line: str) -> None:
        print(line, flush=True)

    print(f"wrote {write_page(folder, [*sizes(say), *regimes(say), *agents(say)])}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
