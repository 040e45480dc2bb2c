"""A tree through verl's own batch, advantage and loss has the gradient of Rolltree's own step on the packed tree."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
import torch

import rolltree
from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.policy.language import LanguagePolicy
from rolltree.recipe.registry import load_recipe
from rolltree.training.backward import StepKnobs
from rolltree.training.config import Optim
from rolltree.training.step import Learner
from rolltree.tree.table import table

pytest.importorskip("verl.experimental.agent_loop.agent_loop", reason="verl is not installed: make test-verl")

from omegaconf import OmegaConf
from torch.nn.utils.rnn import pad_sequence
from verl import DataProto
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from rolltree.integrations.verl import loop as adapter
from rolltree.integrations.verl import register_credits, register_objective
from tests.adapt.verl.test_loop import PARAMS, Server, loop_of, row


def grown(monkeypatch):
    """Outputs of sessions, and the trees they came from."""
    trees = []
    honest = adapter.credited

    def watched(parts, forest, limit):
        trees.extend(forest)
        return honest(parts, forest, limit)

    monkeypatch.setattr(adapter, "credited", watched)

    async def sessions():
        made = loop_of(Server(), recipe="treepo", scores="credit", knobs={"leaves": 6, "segment": 4})
        # No leaf is filtered, and credit differs along a path.
        made._parts = replace(made._parts, filters=(), credit=load_credit("node_delta"))
        return [await made.run(dict(PARAMS), **row(n)) for n in range(3)]

    return asyncio.run(sessions()), trees


def batch_of(outputs):
    """What verl's trainer has of them, padded to the right."""
    flat = [(f"u{s}_0_{i}", output.as_dict()) for s, session in enumerate(outputs) for i, output in enumerate(session)]

    def column(name, dtype):
        rows = [torch.as_tensor(fields[name], dtype=dtype) for _, fields in flat]
        return pad_sequence(rows, batch_first=True)

    data = DataProto.from_dict(
        tensors={
            "responses": column("responses", torch.long),
            "response_mask": column("response_mask", torch.float32),
            "token_level_rewards": column("rm_scores", torch.float32),
            "old_log_probs": column("rollout_log_probs", torch.float32),
        },
        non_tensors={"uid": np.array([key.split("_")[0] for key, _ in flat], object)},
    )
    return data, [key for key, _ in flat], [fields["prompts"] for _, fields in flat]


def test_verls_batch_advantage_and_loss_give_rolltrees_gradient(monkeypatch):
    outputs, trees = grown(monkeypatch)
    data, keys, prompts = batch_of(outputs)
    register_credits()
    register_objective("wide", "clipped", clip_high=0.28)
    data = compute_advantage_for_multi_trajectories(data, keys, "rolltree_given", config=OmegaConf.create({}))
    advantages, mask = data.batch["advantages"], data.batch["response_mask"]
    assert any(len(set(a[m > 0].tolist())) > 1 for a, m in zip(advantages, mask, strict=True))

    model = rolltree.load("nano").model
    rows = []
    for prompt, response, own in zip(prompts, data.batch["responses"], mask, strict=True):
        ids = torch.tensor([[*torch.as_tensor(prompt).tolist(), *response[: int(own.sum())].tolist()]])
        logp = model(ids).logits.log_softmax(-1)[0, len(prompt) - 1 : -1]
        rows.append(logp.gather(1, ids[0, len(prompt) :, None])[:, 0])
    read = pad_sequence(rows, batch_first=True)
    old = read.detach()
    loss, _ = get_policy_loss_fn("rolltree_wide")(
        old, read, advantages, mask, loss_agg_mode="token-mean", config=None, rollout_is_weights=None
    )
    loss.backward()
    theirs = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    own = rolltree.load("nano").model
    parts = load_recipe("treepo", segment=4).build()
    view = table(trees)
    advantage = load_credit("node_delta")(view)
    folded = fold(view, advantage, leaf_weights(view, "token", counted=advantage.counted))
    before = {name: p.detach().clone() for name, p in own.named_parameters()}
    # Plain SGD with rate 1 shows the gradient as the change of the weights.
    optim = Optim(lr=1.0, warmup=0, clip_norm=1e9)
    learner = Learner(LanguagePolicy(own), torch.optim.SGD(own.parameters(), lr=1.0), optim, {})
    learner.step(parts.objective, view, folded, None, version=7, knobs=StepKnobs(2048, False, 0.1, 1e4, 4))
    moved = 0.0
    for name, p in own.named_parameters():
        torch.testing.assert_close(before[name] - p.detach(), theirs[name], atol=2e-5, rtol=1e-3, msg=name)
        moved = max(moved, float(theirs[name].abs().max()))
    assert moved > 1e-3
