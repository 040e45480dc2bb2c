"""A tree recipe inside TRL's GRPO trainer: TreePO's segment tree and its nested credit, on the embedded policy.

Run it with `python examples/trl_tree.py` (needs `pip install 'rolltree[trl]'`): half a minute of one core.
"""

from __future__ import annotations

import sys
from tempfile import mkdtemp

from trl import GRPOConfig

import rolltree
from rolltree.integrations.data import distinct_items, prompt_dataset
from rolltree.integrations.trl import TreeGRPOTrainer, TreeRollouts, grpo_settings, rolltree_reward
from rolltree.recipe.registry import load_recipe


def main(steps: int = 40) -> list[float]:
    recipe = load_recipe("treepo", leaves=8, segment=8, overlong=False)
    policy, task = rolltree.load("nano"), rolltree.load_task("arithmetic", level=1)
    items = distinct_items(task, 256)
    config = GRPOConfig(
        output_dir=mkdtemp(), max_steps=steps, learning_rate=5e-4, lr_scheduler_type="constant", warmup_steps=2,
        per_device_train_batch_size=64, num_generations=8, max_completion_length=task.max_tokens,
        gradient_checkpointing=False, use_cpu=True, bf16=False, report_to="none", save_strategy="no", logging_steps=1,
        disable_tqdm=True, **grpo_settings(recipe),
    )  # fmt: skip
    trainer = TreeGRPOTrainer(
        model=policy.model, args=config, processing_class=policy.codec.tokenizer,
        train_dataset=prompt_dataset(items), reward_funcs=rolltree_reward,
        rollout_func=TreeRollouts(recipe, task, items),
    )  # fmt: skip
    trainer.train()
    lines = [line for line in trainer.state.log_history if "rolltree/outcome" in line]
    for number, line in enumerate(lines, 1):
        numbers = {name: line[f"rolltree/{name}"] for name in ("outcome", "decoded", "idle_rows", "version")}
        print(f"step {number:>2}  " + "  ".join(f"{name} {value:g}" for name, value in numbers.items()))
    return [line["rolltree/outcome"] for line in lines]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
