"""What knobs that vary follow: numbers of the last step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rolltree.generate.signals import log_entropy
from rolltree.tree.table import Table
from rolltree.varying import Told, schedule

PIVOT = 0.8
"""Quantile of log-entropy between the actions taken for certain and for uncertain ones (HAPO, arXiv 2509.16591)."""


def followed(texts: Mapping[str, str], numbers: Told) -> dict[str, float]:
    """Those of a step's numbers that some schedule follows."""
    names = {name for text in texts.values() if (found := schedule(text)) is not None for name, _ in found.reads}
    return {name: numbers[name] for name in sorted(names & numbers.keys())}


def log_entropies(view: Table) -> dict[str, float]:
    """Where the log-entropies of a step's trained actions lie, as they were sampled; {} where none was recorded."""
    entropy = view.flat("entropy", np.nan)
    entropy = entropy[view.loss_mask & np.isfinite(entropy)]
    if not len(entropy):
        return {}
    e = log_entropy(entropy)
    return {"policy/log_entropy_pivot": float(np.quantile(e, PIVOT)), "policy/log_entropy_most": float(e.max()),
            "policy/log_entropy_least": float(e.min())}  # fmt: skip
