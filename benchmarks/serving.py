"""All ratios of serving on docs/speed.md, by processor time on one thread, each case into a baseline of its own.

    rolltree bench serving [--only NAME ...] [--repeats 3] [--again] [--folder benchmarks/baselines/serving]

uniform-64 … tree-256    the local engine against `generate` (benchmarks/engine.py)
guesses-DRAFTER          decoding with guesses against decoding without, at batches of 1 to 64 (benchmarks/guesses.py)
large-DRAFTER            the same of SmolLM2-135M-Instruct, at batches of 1 and 4
shared-forked, -tree     shared prefixes against a copy for each request (benchmarks/inside.py)
order                    trees that have begun first, against first come, first served
cancel                   steps before and after half of the requests were cancelled
shares                   where the time of steps goes, by cProfile

A case that has a baseline is left out, so a run that was cut off goes on where it was; `--again` forgets those of the
chosen cases first. At the end the tables of docs/speed.md are written again from all baselines (benchmarks/page.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import engine
import guesses
import inside
import page
import torch
from machine import clock, save


def all_cases(repeats: int) -> dict[str, Callable[[], Sequence[Any]]]:
    """What there is to measure, by name."""
    out: dict[str, Callable[[], Sequence[Any]]] = {
        f"{name}-{batch}": partial(engine.rows, None, [batch], repeats, 1, [name], engine.show)
        for name, batches in (("uniform", (64, 256)), ("ragged", (64, 256)), ("forked", (64, 256)), ("tree", (256,)))
        for batch in batches
    }
    out |= {f"guesses-{page.case_of(drafter)}": partial(_guessed, drafter, repeats) for drafter in page.GUESSES}
    out |= {f"large-{page.case_of(drafter)}": partial(_guessed_large, drafter, repeats) for drafter in page.LARGE}
    out |= {f"shared-{name}": lambda name=name: [inside.share(name, 256, repeats)] for name in ("forked", "tree")}
    out["order"] = lambda: [inside.order(named=False), inside.order(named=True)]
    out["cancel"] = lambda: [inside.cancel(name, repeats) for name in ("uniform", "forked")]
    out["shares"] = lambda: [inside.shares(name) for name in ("uniform", "forked", "tree")]
    return out


def _guessed(drafter: str, repeats: int) -> Sequence[Any]:
    return guesses.compare_all(
        argparse.Namespace(
            model="nano", task="arithmetic", batch=[1, 4, 16, 64], drafters=[drafter], temperature=1.0, max_tokens=48,
            rounds=3, repeats=repeats,
        )
    )  # fmt: skip


def _guessed_large(drafter: str, repeats: int) -> Sequence[Any]:
    return guesses.compare_all(
        argparse.Namespace(
            model="smollm2-135m", task="arithmetic", batch=[1, 4], drafters=[drafter], temperature=1.0,
            max_tokens=48, rounds=2, repeats=repeats,
        )
    )  # fmt: skip


def main() -> None:
    """Measure what has no baseline yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these cases; a name's beginning will do")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--again", action="store_true", help="measure the chosen cases anew")
    parser.add_argument("--folder", type=Path, default=page.BASELINES / "serving")
    asked = parser.parse_args()
    clock.kind = "cpu"
    torch.set_num_threads(1)
    known = all_cases(asked.repeats)
    strange = [name for name in asked.only if not any(case.startswith(name) for case in known)]
    if strange:
        parser.error(f"there is no case {strange[0]}; there are {', '.join(known)}")
    chosen = [case for case in known if not asked.only or case.startswith(tuple(asked.only))]
    asked.folder.mkdir(parents=True, exist_ok=True)
    for case in chosen if asked.again else ():
        (asked.folder / f"{case}.json").unlink(missing_ok=True)
    for case in chosen:
        path = asked.folder / f"{case}.json"
        if path.exists():
            print(f"{case}: measured before, see {path}", flush=True)
            continue
        print(f"{case} ...", flush=True)
        save(path, known[case]())
    if asked.folder == page.BASELINES / "serving":
        page.write()


if __name__ == "__main__":
    main()
