"""Rolltree's credits as verl's advantage estimators.

verl calls an estimator with `token_level_rewards` and `response_mask` (rollouts × tokens) and `index`, the prompt each
rollout belongs to, and wants advantages and returns of that shape. It passes no prefixes on, so each prompt's rollouts
form a flat tree; credits that need more than outcomes are refused when they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rolltree.credit.advantage import Credit
from rolltree.credit.fold import expand, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.integrations.errors import AdaptError
from rolltree.tree import Tree
from rolltree.tree.table import table

Estimator = Callable[..., tuple[Tensor, Tensor]]
GIVEN = frozenset({"reward"})
"""What verl tells an estimator of a rollout."""


def advantage_estimator(credit: str | Credit, **knobs: Any) -> Estimator:
    """A credit as a function in verl's signature: advantages per token, and the same as returns."""
    made = load_credit(credit, **knobs) if isinstance(credit, str) else credit
    more = sorted(made.needs - GIVEN)
    if more:
        raise AdaptError(
            f"the credit {type(made).__name__} needs {', '.join(more)}, and verl tells an estimator outcomes only; "
            "choose a group credit such as grpo, rloo or opo"
        )

    def estimate(
        token_level_rewards: Tensor, response_mask: Tensor, index: Sequence[Any] | NDArray[Any] | None = None, **_: Any
    ) -> tuple[Tensor, Tensor]:
        if index is None:
            raise AdaptError(
                "verl gave no `index`, so nothing says which rollouts share a prompt; set `uid` in the data"
            )
        mask = response_mask.detach().cpu().numpy() > 0
        rewards = (token_level_rewards.detach().double().cpu().numpy() * mask).sum(1)
        values = torch.from_numpy(_advantages(made, rewards, mask, [str(i) for i in index]))
        advantages = values.to(token_level_rewards.device, token_level_rewards.dtype)
        return advantages, advantages

    return estimate


def given(token_level_rewards: Tensor, response_mask: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    """Token-level rewards that are advantages already, as `TreeAgentLoop(scores="credit")` writes them.

    Nothing else may be added to them: leave `algorithm.use_kl_in_reward` off.
    """
    advantages = token_level_rewards * response_mask
    return advantages, advantages


def register_credits(credits: Iterable[str] = (), prefix: str = "rolltree_") -> tuple[str, ...]:
    """Register credits in verl; choose one with `algorithm.adv_estimator=rolltree_NAME`.

    `rolltree_given`, which takes the advantages that a tree's own credit gave, is registered with them.
    """
    try:
        from verl.trainer.ppo.core_algos import (  # pyright: ignore[reportMissingImports]
            ADV_ESTIMATOR_REGISTRY,
            register_adv_est,
        )
    except ImportError as error:
        raise AdaptError(f"registering credits needs verl ({error}): pip install verl") from None
    names = tuple(f"{prefix}{credit}" for credit in credits)
    for name in names:
        # Asked for twice (by a configuration and by a module it imports) it stays the first.
        if name not in ADV_ESTIMATOR_REGISTRY:
            register_adv_est(name)(advantage_estimator(name.removeprefix(prefix)))
    register_adv_est(f"{prefix}given")(given)
    return names


def _advantages(
    credit: Credit, rewards: NDArray[np.float64], mask: NDArray[np.bool_], index: Sequence[str]
) -> NDArray[np.float64]:
    """Per rollout and token, 0 where the mask is."""
    trees: dict[str, Tree] = {}
    row_of: dict[tuple[str, int], int] = {}
    for row, prompt in enumerate(index):
        tree = trees.setdefault(prompt, Tree(prompt, [0]))
        tokens = np.zeros(int(mask[row].sum()), np.int32)
        leaf = tree.extend(tree.root, tokens, status="done", scores={"reward": float(rewards[row])})
        row_of[prompt, leaf.id] = row
    view = table(trees.values())
    advantage = credit(view)
    written = expand(view, advantage, leaf_weights(view, "token", counted=advantage.counted))
    out = np.zeros(mask.shape)
    at = np.searchsorted(written.path, np.arange(len(written.leaf) + 1))
    for i, leaf in enumerate(written.leaf.tolist()):
        node = view.nodes[view.leaf[leaf]]
        row = row_of[view.trees[view.leaf_tree[leaf]].id, node.id]
        out[row, mask[row]] = written.advantage[at[i] : at[i + 1]]
    return out
