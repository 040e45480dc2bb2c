"""TRL trainers of the embedded policy on small batches, shared by the tests of the adapter."""

from __future__ import annotations

import os
from typing import Any

import pytest

import rolltree
from rolltree.integrations.data import distinct_items, prompt_dataset
from rolltree.integrations.trl import TreeRollouts, rolltree_reward
from rolltree.task.protocol import Item, Task

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"


def items_of(task: Task, count: int = 6) -> list[Item]:
    return distinct_items(task, count, seed=3)


def trainer_of(recipe: Any, task: Task, out: Any, *, own: bool = True, chat: bool = False, **config: Any) -> Any:
    """A trainer of two prompts a step with four rows each; `own` = with Rolltree's credit."""
    trl = pytest.importorskip("trl", reason="TRL is not installed: pip install 'rolltree[trl]'")
    from rolltree.integrations.trl import TreeGRPOTrainer

    policy, items = rolltree.load("nano"), items_of(task)
    settings = {
        "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 64, "max_steps": 2,
        "learning_rate": 1e-3, "logging_steps": 1, "report_to": "none", "save_strategy": "no", "use_cpu": True,
        "bf16": False, "gradient_checkpointing": False, "disable_tqdm": True, "seed": 5,
    } | config  # fmt: skip
    trainer = (TreeGRPOTrainer if own else trl.GRPOTrainer)(
        model=policy.model, args=trl.GRPOConfig(output_dir=str(out), **settings),
        processing_class=policy.codec.tokenizer, train_dataset=prompt_dataset(items, chat=chat),
        eval_dataset=prompt_dataset(items[:2]), reward_funcs=rolltree_reward,
        rollout_func=TreeRollouts(recipe, task, items),
    )  # fmt: skip
    # As inside `train`, which sets both before the first generation.
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def batch_of(trainer: Any) -> list[dict[str, Any]]:
    """The first rows TRL's own data loader gives."""
    rows: list[dict[str, Any]] = next(iter(trainer.get_train_dataloader()))
    return rows
