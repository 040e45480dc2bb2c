"""What was counted, and under which commit: `tests/attack/results.json`, from which SECURITY.md has its table.

`python -m tests.attack.results COMMIT LOG ...` takes the logs of `python -m tests.attack` into the file
and writes the table anew.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.attack.frame import Case, Count

RESULTS, PAGE = Path(__file__).with_name("results.json"), Path(__file__).parents[2] / "SECURITY.md"
BEGIN, END = "<!-- counted -->\n", "<!-- /counted -->\n"
ROWS: dict[str, tuple[str, ...]] = {
    "kills, resumed and compared": ("kills", "kills-recipes", "kills-schedules"),
    "nodes, engines, verifiers and drivers of Ray killed": ("ray", "ray-drivers"),
    "requests with cancellations, updates and faults, 100 a case": (
        "engine-local",
        "engine-tabular",
        "engine-searched",
    ),
    "disks that fill, resumed and compared": ("full-disk",),
    "bad input": ("commands", "data", "nodes", "own-files"),
    "Ctrl-C in the first seconds": ("early-signals",),
    "tasks that return anything": ("returns",),
    "escapes": ("judge", "sandbox", "sql", "pages", "agents"),
    "calls at the gateway's endpoint, 12 a case": ("gateway", "gateway-requests"),
    "servers of sessions ended, killed or without a disk": ("serve",),
    "bursts of clients that go, up to 70 a case": ("serve-gone",),
    "model folders and checkpoints": ("model-folders", "checkpoints"),
    "run folders": ("runs", "runs-resumed"),
    "run folders whose files name code": ("strangers", "strangers-pages"),
    "requests to the viewer, and its folders": ("requests", "folders"),
}


def taken(found: dict[str, Any], commit: str, logs: list[Path]) -> dict[str, Any]:
    """Results with those of some logs in place of earlier ones of the same attacks; of a case run twice the last."""
    cases: dict[tuple[str, int, int], Case] = {}
    for log in logs:
        for line in log.read_text().splitlines():
            case = Case(**json.loads(line))
            cases[case.attack, case.seed, case.number] = case
    counts: dict[str, Count] = {}
    for case in cases.values():
        counts.setdefault(case.attack, Count()).add(case)
    mine = {
        name: {"commit": commit, "cases": count.cases, "bad": len(count.bad), "outcomes": dict(count.outcomes)}
        for name, count in counts.items()
    }
    return dict(sorted({**found, **mine}.items()))


def table(found: dict[str, Any]) -> str:
    """Rows of what was counted."""
    lines = ["| what | cases | as promised | commit |", "|---|---|---|---|"]
    for what, names in ROWS.items():
        there = {name: found[name] for name in names if name in found}
        if not there:
            continue
        parts = ", ".join(f"`{name}` {each['cases']}" for name, each in there.items())
        good = sum(each["cases"] - each["bad"] for each in there.values())
        if killed := sum(kills(each["outcomes"]) for each in there.values()):
            parts += f"; {killed} kills"
        commits = ", ".join(sorted({each["commit"] for each in there.values()}))
        lines.append(f"| {what} | {parts} | {good} of {sum(e['cases'] for e in there.values())} | {commits} |")
    return "\n".join(lines) + "\n"


def kills(outcomes: dict[str, int]) -> int:
    """How many were killed in all of these cases."""
    return sum(int(m[1]) * count for what, count in outcomes.items() if (m := re.match(r"(\d+) kill", what)))


def written(page: str, found: dict[str, Any]) -> str:
    """The page with the table as the results have it."""
    head, rest = page.split(BEGIN)
    return head + BEGIN + table(found) + END + rest.split(END)[1]


def main(words: list[str]) -> None:
    """Take logs in."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    found = taken(found, words[0], [Path(word) for word in words[1:]])
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    PAGE.write_text(written(PAGE.read_text(), found))


if __name__ == "__main__":
    main(sys.argv[1:])
