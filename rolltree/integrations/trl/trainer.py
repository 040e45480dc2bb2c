"""TRL's GRPO trainer with Rolltree's advantages in place of its group normalisation.

TRL computes advantages inside the method that also generates, and offers no hook for them; its loss, though, takes one
advantage per token. So exactly that method is wrapped: TRL's runs as it is, then its `advantages` are replaced.
"""

from __future__ import annotations

from typing import Any

import torch

from rolltree.integrations.errors import AdaptError
from rolltree.integrations.trl.reward import ADVANTAGE

try:
    from trl.trainer.grpo_trainer import GRPOTrainer
except ImportError as error:
    raise AdaptError(f"TreeGRPOTrainer needs TRL ({error}): pip install 'rolltree[trl]'") from None


class TreeGRPOTrainer(GRPOTrainer):
    """`GRPOTrainer` whose loss uses the recipe's credit; every other argument and behaviour is TRL's."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output: dict[str, Any] = super()._generate_and_score_completions(inputs)
        # TRL writes the extra fields of a rollout into the rows it was given.
        missing = [row for row in inputs if ADVANTAGE not in row]
        if missing:
            raise AdaptError(
                "TreeGRPOTrainer got rollouts without advantages; pass rollout_func=TreeRollouts(…), or use TRL's "
                "own GRPOTrainer"
            )
        advantages = torch.zeros_like(output["completion_ids"], dtype=torch.float32)
        for i, row in enumerate(inputs):
            values = torch.tensor(row[ADVANTAGE], dtype=torch.float32)
            advantages[i, : len(values)] = values
        output["advantages"] = advantages
        return output
