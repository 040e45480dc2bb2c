"""Run all studies of the clock and write the page: `python -m studies.clock`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from studies.clock.page import write_page
from studies.clock.study import agents, regimes, sizes
from studies.command import run_study


@dataclass(frozen=True)
class ClockSettings:
    """Where the result goes."""

    out: Path = Path("docs/measured")
    """Folder for scheduling.md with its figure and numbers."""


def main(settings: ClockSettings) -> None:
    """Everything; about a minute of processor time."""

    def say(line: str) -> None:
        print(line, flush=True)

    print(f"wrote {write_page(settings.out, [*sizes(say), *regimes(say), *agents(say)])}")


if __name__ == "__main__":
    raise SystemExit(run_study("clock", ClockSettings, main, __doc__))
