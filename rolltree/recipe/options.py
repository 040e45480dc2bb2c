"""Names that no knob of a recipe has, because an option of the command line has them.

`rolltree train`, `rollout` and `solve` show a recipe's knobs beside their own options, under their bare names.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rolltree.recipe.recipe import RecipeError

OPTIONS = frozenset({
    "agent", "answer", "at_once", "betas", "chat", "chat_template", "checkpoint_every", "clip_norm", "cluster",
    "cluster_engines", "cluster_workers", "control",
    "decoded", "device", "doctor", "dtype", "end_items", "engine", "engine_precision",
    "epochs", "eps", "eval_every", "eval_items", "eval_samples", "fallback", "forests_every", "full_prompt",
    "gradient_checkpointing", "gradient_noise", "held", "help", "holdout", "item_tokens", "items", "items_from", "json",
    "jsonl", "keep_checkpoints", "level", "log_entropy", "lora", "loss_limit", "lr", "lr_floor", "lr_schedule",
    "lr_updates", "max_tokens", "mcp", "minibatch_prompts", "minibatches", "mismatch_limit", "mismatch_share",
    "no_log_entropy", "no_trees", "optim", "out", "piece", "policy", "prompt", "prompts", "proximal_decay", "ranks",
    "resume", "reward", "role", "run_tokens", "scheduler", "seconds", "seed", "show", "solved_at", "speculate",
    "staleness", "steps", "system", "task", "temperature", "think", "threads", "token_budget", "tool", "top_p",
    "trackers", "train_precision", "trees", "trust_remote_code", "use_answers", "use_credit", "use_objective", "warmup",
    "weight_decay",
})  # fmt: skip
"""The options of the three verbs together; a test holds them against the verbs."""


def check_names(name: str, recipe: type[Any]) -> None:
    """Refuse a recipe with a knob that has the name of an option."""
    taken = [field.name for field in fields(recipe) if field.init and field.name in OPTIONS]
    if taken:
        raise RecipeError(
            f"the recipe {name!r} has a knob {taken[0]!r}, and the command line has an option of that name "
            f"(--{taken[0].replace('_', '-')}); call the knob something else"
        )
