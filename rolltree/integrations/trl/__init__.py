"""Any strategy or recipe inside TRL: `TreeRollouts` for `rollout_func`, `TreeGRPOTrainer` for our own credit.

`TreeWorker` speaks TRL's asynchronous worker protocol. Everything but the trainer works without importing TRL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rolltree.integrations.trl.reward import rolltree_reward
from rolltree.integrations.trl.rollouts import TreeRollouts
from rolltree.integrations.trl.settings import grpo_settings

if TYPE_CHECKING:
    from rolltree.integrations.trl.trainer import TreeGRPOTrainer
    from rolltree.integrations.trl.worker import TreeWorker

__all__ = ["TreeGRPOTrainer", "TreeRollouts", "TreeWorker", "grpo_settings", "rolltree_reward"]


def __getattr__(name: str) -> Any:
    # Looked up on first use: these two need TRL itself.
    if name == "TreeGRPOTrainer":
        from rolltree.integrations.trl.trainer import TreeGRPOTrainer

        return TreeGRPOTrainer
    if name == "TreeWorker":
        from rolltree.integrations.trl.worker import TreeWorker

        return TreeWorker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
