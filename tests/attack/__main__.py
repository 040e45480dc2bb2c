"""`python -m tests.attack [NAME ...] [--seed S] [--cases N] [--minutes M] [--only N] [--short] [--out FOLDER]`.

Cases that stand in the folder's log already are not run again, so an attack that was stopped goes on. Exit status 1 =
something that must never happen has happened; the case and the way to run it again are printed.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.attack.frame import Attack, Count, attack
from tests.attack.registry import attacks


def main() -> int:
    """Run attacks and count."""
    known = attacks()
    ask = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    ask.add_argument("names", nargs="*", metavar="NAME", help=f"which (all): {', '.join(known)}")
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--cases", type=int, help="cases of each attack (its own number)")
    ask.add_argument("--only", type=int, help="one case by its number, never taken from the log")
    ask.add_argument("--minutes", type=float, help="of each attack, after which no further case is begun")
    ask.add_argument("--short", action="store_true", help="the form that is part of make test and make test-ray")
    ask.add_argument("--out", type=Path, default=Path("runs/attack"), help="folder of the logs")
    chosen = ask.parse_args()
    if wrong := [name for name in chosen.names if name not in known]:
        ask.error(f"no attack {wrong[0]!r}; there are {', '.join(known)}")
    counts = {name: _one(known[name], chosen) for name in chosen.names or known}
    return 1 if any(count.bad for count in counts.values()) else 0


def _one(what: Attack, chosen: argparse.Namespace) -> Count:
    count = Count()
    cases = chosen.cases or (what.short if chosen.short else what.long)
    numbers = [chosen.only] if chosen.only is not None else range(cases)
    log = None if chosen.only is not None else chosen.out / f"{what.name}.jsonl"
    end = None if chosen.minutes is None else time.monotonic() + 60 * chosen.minutes
    for case in attack(what, chosen.seed, numbers, log, end):
        count.add(case)
        if case.bad:
            again = f"python -m tests.attack {what.name} --seed {chosen.seed} --only {case.number}"
            print(f"BAD {what.name} case {case.number}: {case.outcome}\n  again: {again}", flush=True)
    print(count.line(what.name), flush=True)
    return count


if __name__ == "__main__":
    sys.exit(main())
