"""Rolltree in verl: credits as advantage estimators, objectives as policy losses, strategies as agent loops.

`TreeAgentLoop` is looked up on first use, since it needs verl itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rolltree.integrations.verl.credits import advantage_estimator, given, register_credits
from rolltree.integrations.verl.objectives import policy_loss, register_objective

if TYPE_CHECKING:
    from rolltree.integrations.verl.loop import TreeAgentLoop

__all__ = [
    "TreeAgentLoop", "advantage_estimator", "given", "policy_loss", "register_credits", "register_objective",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "TreeAgentLoop":
        from rolltree.integrations.verl.loop import TreeAgentLoop

        return TreeAgentLoop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
