"""How far the sampling distribution is from the policy that is trained: numbers for every step, whatever the
objective."""

from __future__ import annotations

from torch import Tensor

from rolltree.objective.batch import Batch, need
from rolltree.objective.penalty import kl
from rolltree.objective.ratio import behaviour, path_sum, ratio
from rolltree.objective.staleness import ess
from rolltree.objective.window import share


def mismatch(batch: Batch, threshold: float = 0.1) -> dict[str, Tensor]:
    """Difference between log π_old and log π_sampled over the actions that have a sampling probability.

    `mismatch`, `mismatch_max`: of its absolute value. `mismatch_over`: weight of the actions where it exceeds
    the threshold.
    `sampling_k3`: estimate of KL(π_sampled‖π_old). `unsampled`: weight of the actions without a sampling probability.
    `ess`: effective share of the paths under their whole importance weights, or of the actions when there are no paths.
    """
    base, known = behaviour(batch.old, need(batch.sampled, "sampled", "a mismatch report"))
    log_w = (batch.old - base).detach()
    weight = batch.weight * known
    apart = log_w.abs()
    total = log_w[known] if batch.paths is None else path_sum(log_w[batch.paths.index], batch.paths)
    return {
        "mismatch": share(weight, apart),
        "mismatch_max": apart.max() if len(apart) else apart.sum(),
        "mismatch_over": share(weight, apart > threshold),
        "sampling_k3": share(weight, kl(-log_w, "k3")),
        "unsampled": share(batch.weight, ~known),
        "ess": ess(ratio(total)),
    }
