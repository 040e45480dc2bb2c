"""How old actions are, in versions of the weights."""

from __future__ import annotations

import numpy as np

from rolltree.tree.table import Ints


def ages(version: Ints, now: int) -> Ints:
    """Versions between the weights that wrote each action and the present ones; -1 where the writer is unknown."""
    return np.where(version < 0, -1, now - version)


def age_numbers(version: Ints, now: int) -> dict[str, float]:
    """Mean and largest age of the actions whose writer is known, and the share of all that is not of this version."""
    known = ages(version, now)
    known = known[known >= 0]
    if not len(known):
        return {}
    return {
        "age.mean": float(known.mean()), "age.max": float(known.max()), "age.stale": float((known > 0).mean()),
    }  # fmt: skip
