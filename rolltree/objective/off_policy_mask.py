"""The off-policy sequence mask: what went badly under another policy is not pushed down (DeepSeek-V3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need, need_paths
from rolltree.objective.correction import with_entries
from rolltree.objective.ratio import behaviour, path_mean
from rolltree.objective.window import share


@dataclass(frozen=True, slots=True)
class OffPolicyMask:
    """Drops negative advantages on paths whose mean of log π_sampled − log π is above `threshold` nats per action.

    Positive ones stay, however far the policy has moved. It reads the current weights, so a path may fall out between
    the updates of a step. Actions without a sampling probability take no part in the mean; TRL counts them as 0.
    Dropped actions still count in the loss's average, as in TRL.
    """

    threshold: float = 0.5
    level: Level = "path"
    skips_idle: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.threshold > 0:
            raise ObjectiveError(f"off-policy mask: threshold={self.threshold} must be above 0, in nats per action")

    @property
    def needs(self) -> frozenset[str]:
        """The sampling distribution."""
        return frozenset({"sampled"})

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The batch without such credit, and the share of the paths' weight that lost it."""
        paths = need_paths(batch, "an off-policy mask")
        base, known = behaviour(batch.old, need(batch.sampled, "sampled", "an off-policy mask"))
        apart = path_mean((base - batch.logp.detach())[paths.index], paths, known[paths.index])[paths.path]
        dropped = (apart > self.threshold) & (paths.advantage < 0)
        kept = torch.where(dropped, 0, paths.advantage)
        return with_entries(batch, kept), {"rejected": share(paths.entry_weight, dropped)}
