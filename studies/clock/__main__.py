"""Run all studies and write the page: `python -m studies.clock [FOLDER]`."""

from __future__ import annotations

import sys
from pathlib import Path

from studies.clock.page import write_page
from studies.clock.study import agents, regimes, sizes


def main(folder: Path = Path("docs/measured")) -> None:
    """Everything; about a minute of processor time."""

    def say(line: str) -> None:
        print(line, flush=True)

    print(f"wrote {write_page(folder, [*sizes(say), *regimes(say), *agents(say)])}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
