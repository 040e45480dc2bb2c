"""Kept runs of other code, taken over where one of them comes out the same again.

A table grows over many sittings, and the code moves between them. What a run is made by is part of its name, so a kept
run of other code is not used. Here one run of each kind is made anew: where every number but its times is the same, the
change did not touch this kind, and its other kept runs stand for the present code too. Runs are of one kind when they
share task, policy, recipe and knobs, numbers of knobs aside.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

from rolltree.compare.runner import Spec
from studies.lab.kept import KeptShelf

TIMES = ("seconds", "time/")
ROUNDING = 1e-6
"""Relative difference up to which two numbers are the same, as for a repeated seed of evidence."""


def take_over(specs: Iterable[Spec], shelf: KeptShelf, say: Callable[[str], None]) -> int:
    """Repeat one kept run of each kind and take the others over; how many runs were."""
    kinds: dict[str, list[Spec]] = {}
    for spec in specs:
        if shelf.get(spec) is None and shelf.elsewhere(spec) is not None:
            kinds.setdefault(kind(spec), []).append(spec)
    taken = 0
    for first, *rest in kinds.values():
        was = shelf.elsewhere(first)
        made = shelf.make(first, lambda cost, doing: None)
        shelf.keep(first, made)
        now = shelf.line(first)
        assert was is not None
        assert now is not None
        told = f"{first.arm.label} on {first.conditions.task}, seed {first.seed}"
        if apart := differing(was, now):
            say(f"{told}: not the same again ({apart}), so its kind is made anew")
            continue
        for spec in rest:
            shelf.take_over(spec, first)
        taken += len(rest)
        say(f"{told}: the same again, {len(rest)} more runs of its kind are taken over")
    return taken


def kind(spec: Spec) -> str:
    """What decides which code a run goes through."""
    knobs = {name: "" if isinstance(value, int | float) and not isinstance(value, bool) else value
             for name, value in spec.arm.knobs}  # fmt: skip
    return json.dumps([spec.arm.recipe, knobs, spec.conditions.task, spec.conditions.model], sort_keys=True)


def differing(was: dict[str, Any], now: dict[str, Any]) -> str:
    """The first number that is not the same, times and rounding aside; nothing where all are.

    What shares a batch depends on time, and the order of a sum on what shares a batch.
    """
    for field in ("items", "first"):
        if was[field] != now[field]:
            return f"{field} differ"
    if len(was["rows"]) != len(now["rows"]):
        return f"{len(was['rows'])} rows, and {len(now['rows'])} now"
    for number, (old, new) in enumerate(zip(was["rows"], now["rows"], strict=True)):
        for name in sorted(old):  # a later version may keep more
            if not name.startswith(TIMES) and not _same(old.get(name), new.get(name)):
                return f"{name} of row {number} was {old.get(name)}, and is {new.get(name)}"
    return ""


def _same(old: float | None, new: float | None) -> bool:
    if old is None or new is None:
        return old is new
    return old == new or math.isclose(old, new, rel_tol=ROUNDING)
