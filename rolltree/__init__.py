"""One rollout engine for reinforcement learning of language models: every rollout strategy a composable recipe.

import rolltree

policy = rolltree.load("nano")
forest = rolltree.grow("grpo", policy, "countdown", items=4)
run = rolltree.train("grpo", policy, "countdown", out="runs/first", steps=50)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rolltree.policy.load import load_model as load
    from rolltree.recipe.registry import list_recipes, load_recipe
    from rolltree.task.registry import list_tasks, load_task
    from rolltree.training.config import TrainConfig
    from rolltree.training.grow import grow
    from rolltree.training.start import train

__version__ = "0.2.0.dev0"

# Looked up on first use, so that importing the package costs no torch.
_WHERE = {
    "load": ("rolltree.policy.load", "load_model"),
    "load_task": ("rolltree.task.registry", "load_task"),
    "list_tasks": ("rolltree.task.registry", "list_tasks"),
    "load_recipe": ("rolltree.recipe.registry", "load_recipe"),
    "list_recipes": ("rolltree.recipe.registry", "list_recipes"),
    "grow": ("rolltree.training.grow", "grow"),
    "train": ("rolltree.training.start", "train"),
    "TrainConfig": ("rolltree.training.config", "TrainConfig"),
}

__all__ = [
    "TrainConfig",
    "__version__",
    "grow",
    "list_recipes",
    "list_tasks",
    "load",
    "load_recipe",
    "load_task",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'rolltree' has no attribute {name!r}")
    module, attribute = _WHERE[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
