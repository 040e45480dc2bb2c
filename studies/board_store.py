"""Runs of a board that stands already, so that a new arm can join without all others being trained again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from rolltree.lab.arms import Arm
from rolltree.lab.compare import Comparison, conclude
from rolltree.lab.trace import LabError, Trace
from studies.board_table import BoardColumn

Row = Mapping[str, float]


def stored(path: Path, every: int, columns: Sequence[BoardColumn] = ()) -> list[Trace]:
    """The runs behind a board, from the numbers written beside its page (`board_page.numbers`).

    Of the steps between two evaluations only their number is known, `every`; each stands where an even pace would have
    brought it. What a column shows is known as one mean and stands in every step.
    """
    try:
        raw = cast("dict[str, list[dict[str, Any]]]", json.loads(path.read_text(encoding="utf-8")))
        return [_trace(label, run, every, columns) for label, runs in raw.items() for run in runs]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise LabError(f"cannot read the runs of {path}: {error!r}; make the whole board again") from error


def joined(fresh: Comparison, known: Sequence[Trace], arms: Sequence[Arm]) -> Comparison:
    """A comparison over `arms` of runs made now and runs known before, which must be of the same experiment.

    That they are is seen from the baseline: run again, it must repeat its numbers.
    """
    base = fresh.arms[0].label
    for mine in fresh.of(base):
        theirs = next((t for t in known if (t.label, t.seed) == (base, mine.seed)), None)
        if theirs is None or not _same(mine, theirs):
            raise LabError(
                f"{base}, seed {mine.seed}, does not repeat the numbers that stand in the board: its task, knobs or "
                "code were others; make the whole board again"
            )
    made = {t.label for t in fresh.traces}
    kept = [t for t in known if t.label not in made and t.label in {a.label for a in arms}]
    chosen = [a for a in arms if a.label in made | {t.label for t in kept}]
    both = conclude(
        chosen, fresh.conditions, fresh.seeds, [*fresh.traces, *kept], metric=fresh.metric, confidence=fresh.confidence
    )
    return replace(both, seconds=fresh.seconds, command=fresh.command)


def _trace(label: str, run: Mapping[str, Any], every: int, columns: Sequence[BoardColumn]) -> Trace:
    judged = [{str(k): float(v) for k, v in row.items()} for row in run["rows"]]
    means = {c.metric: float(run[c.metric]) for c in columns if run.get(c.metric) is not None}
    steps: list[Row] = []
    for k, (a, b) in enumerate(pairwise(judged)):
        made = int(run["steps"]) - every * k if k == len(judged) - 2 else every
        for share in (step / made for step in range(1, made + 1)):
            steps.append({x: a[x] + (b[x] - a[x]) * share for x in ("decoded", "trained", "seconds")} | means)
    return Trace(label, int(run["seed"]), (*judged, *steps))


def _same(mine: Trace, theirs: Trace) -> bool:
    a, b = ([*zip(*t.curve("pass@1"), strict=True)] for t in (mine, theirs))
    return len(a) == len(b) and np.allclose(a, b)
