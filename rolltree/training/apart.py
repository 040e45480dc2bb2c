"""How far a step's credit is from GRPO's on the same rollouts: whether a credit, a filter or a weight did anything."""

from __future__ import annotations

import numpy as np

from rolltree.credit.advantage import Floats
from rolltree.credit.fold import Folded, Multiplicity, fold
from rolltree.credit.group import GRPO
from rolltree.tree.table import Table

ROUNDING = 1e-9
"""Below this the two are the same."""


def credit_apart(table: Table, folded: Folded, weights: Floats, multiplicity: Multiplicity) -> dict[str, float]:
    """1 − cosine of the advantages with GRPO's over the trained tokens, both under the same weights.

    0 where one is the other up to scale, 1 where GRPO has no signal. Not measured where nothing is taught or an outcome
    is missing.
    """
    mine = folded.gain + folded.loss
    if not mine.any() or not np.isfinite(table.score("reward")[table.leaf][table.live]).all():
        return {}
    plain = fold(table, GRPO()(table), weights, multiplicity)
    theirs = plain.gain + plain.loss
    size = float(np.linalg.norm(mine) * np.linalg.norm(theirs))
    apart = 1.0 - float(mine @ theirs) / size if size else 1.0
    return {"policy/credit_apart": apart if apart > ROUNDING else 0.0}
