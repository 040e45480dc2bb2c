"""Micro-batches under any budget send the gradient of the flat batch with every path written out and padded."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rolltree.credit.advantage import Advantage
from rolltree.credit.fold import Averaging, Multiplicity, expand, fold, leaf_weights
from rolltree.objective.registry import load_objective
from rolltree.policy.language import LanguagePolicy
from rolltree.training.pack import Anchors, Micro, micro_batches, objective_batch
from rolltree.tree.table import Table, table
from tests.policy.forests import random_tree, tiny_llama

MODEL = tiny_llama()
OLD = tiny_llama(seed=1)


def grads(loss: Tensor) -> list[Tensor]:
    MODEL.zero_grad()
    loss.backward()
    return [p.grad.clone() for p in MODEL.parameters() if p.grad is not None]


def padded_flat(view: Table) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probs under MODEL and OLD of a right-padded batch of whole paths, and the flat action of each (-1 = none)."""
    paths: list[list[int]] = []
    flats: list[list[int]] = []
    for row in view.leaf:
        lineage = [int(row)]
        while view.parent[lineage[0]] >= 0:
            lineage.insert(0, int(view.parent[lineage[0]]))
        paths.append([int(a) for r in lineage for a in view.nodes[r].actions])
        flats.append([int(view.start[r]) + k for r in lineage for k in range(int(view.length[r]))])
    width = max(map(len, paths))
    ids = torch.tensor([p + [0] * (width - len(p)) for p in paths])
    mask = torch.tensor([[1] * len(p) + [0] * (width - len(p)) for p in paths])
    flat = torch.tensor([f + [-1] * (width - len(f)) for f in flats])[:, 1:]
    both: list[Tensor] = []
    for model in (MODEL, OLD):
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[:, :-1]
        both.append(logits.log_softmax(-1).gather(-1, ids[:, 1:, None])[..., 0])
    return both[0], both[1].detach(), flat


def flat_loss(
    view: Table, name: str, per_path: np.ndarray, weights: np.ndarray, per_action: np.ndarray, share: np.ndarray
) -> Tensor:
    """The objective as its paper has it, over the padded batch; each action keeps its share of its path's weight."""
    logp, old, flat = padded_flat(view)
    teaches = torch.from_numpy(view.loss_mask)[flat.clamp(min=0)] & (flat >= 0)
    w = torch.from_numpy(weights)[:, None] * torch.from_numpy(share)[flat.clamp(min=0)]
    advantage = torch.from_numpy(per_path)[:, None] + torch.from_numpy(per_action)[flat.clamp(min=0)]
    delta = torch.where(teaches, logp - old, 0.0)
    if name == "gspo":
        s = (delta.sum(1) / teaches.sum(1).clamp(min=1)).exp()[:, None].expand_as(delta)
        low, high = 0.9, 1.1
    else:
        s, low, high = delta.exp(), 0.8, 1.2
    gained = torch.minimum(s * advantage, s.clamp(low, high) * advantage)
    return -(w * torch.where(teaches, gained, 0.0)).sum()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), name=st.sampled_from(["clipped", "gspo"]), budget=st.integers(1, 120),
       averaging=st.sampled_from(["token", "sequence", "group"]),
       multiplicity=st.sampled_from(["per_leaf", "once", "sqrt"]))  # fmt: skip
def test_packed_loss_and_gradient_equal_the_padded_flat_batch(
    seed: int, name: str, budget: int, averaging: Averaging, multiplicity: Multiplicity
) -> None:
    rng = random.Random(seed)
    view = table([random_tree(rng, f"t{i}") for i in range(rng.randint(1, 4))])
    numbers = np.random.default_rng(seed)
    advantage = Advantage(leaf=numbers.normal(size=len(view.leaf)), action=numbers.normal(size=view.actions))
    weights = leaf_weights(view, averaging)
    if not weights.any():
        return
    objective = load_objective("gspo", clip_low=0.1, clip_high=0.1) if name == "gspo" else load_objective("clipped")
    paths = expand(view, advantage, weights, multiplicity) if name == "gspo" else None
    micros = micro_batches(view, fold(view, advantage, weights, multiplicity), budget, paths=paths)
    assert all(len(m.packed) <= budget or one_path(m) for m in micros)
    policy, before = LanguagePolicy(MODEL), LanguagePolicy(OLD)
    total = torch.zeros((), dtype=torch.float64)
    for micro in micros:
        anchors = Anchors(before.read(micro.packed).logp.detach())
        total = total + objective(objective_batch(micro, policy.read(micro.packed), anchors, 0))[0]
    assert advantage.leaf is not None
    assert advantage.action is not None
    times = np.maximum(view.below((weights > 0).astype(np.float64)), 1)
    share = view.per_action({"per_leaf": times**0, "once": 1 / times, "sqrt": times**-0.5}[multiplicity])
    flat = flat_loss(view, name, advantage.leaf, weights, advantage.action, share)
    assert torch.allclose(total, flat, atol=1e-10)
    for a, b in zip(grads(total), grads(flat), strict=True):
        assert torch.allclose(a, b, atol=1e-9)


def one_path(micro: Micro) -> bool:
    return bool((np.diff(micro.packed.position) == 1).all())


def test_trees_stay_whole_where_paths_compete() -> None:
    rng = random.Random(5)
    view = table([random_tree(rng, f"t{i}", nodes=14) for i in range(3)])
    weights = leaf_weights(view, "token")
    advantage = Advantage(leaf=np.ones(len(view.leaf)))
    paths = expand(view, advantage, weights)
    micros = micro_batches(view, fold(view, advantage, weights), 1, paths=paths, whole_trees=True)
    assert [m.trees.tolist() for m in micros] == [[0], [1], [2]]
    assert all(m.group is not None and set(m.group.tolist()) == {i} for i, m in enumerate(micros))


def test_only_chosen_trees_are_packed() -> None:
    rng = random.Random(6)
    view = table([random_tree(rng, f"t{i}") for i in range(4)])
    folded = fold(view, Advantage(leaf=np.ones(len(view.leaf))), leaf_weights(view, "token"))
    parts = [micro_batches(view, folded, 10**6, trees=[i]) for i in range(4)]
    whole = micro_batches(view, folded, 10**6)
    together = np.concatenate([m.packed.action for part in parts for m in part])
    assert together.tolist() == whole[0].packed.action.tolist()


def test_nothing_taught_packs_nothing() -> None:
    view = table([random_tree(random.Random(1), "t", rewards=False)])
    folded = fold(view, Advantage(), leaf_weights(view, "token"))
    assert micro_batches(view, folded, 100) == []


@pytest.mark.parametrize("budget", [20, 60])
def test_a_divided_tree_trains_every_action_once(budget: int) -> None:
    view = table([random_tree(random.Random(2), "t", nodes=60, least=60)])
    folded = fold(view, Advantage(leaf=np.ones(len(view.leaf))), leaf_weights(view, "token"))
    micros = micro_batches(view, folded, budget)
    assert len(micros) > 1
    actions = np.concatenate([m.packed.action for m in micros])
    assert sorted(actions.tolist()) == np.flatnonzero(folded.weight > 0).tolist()
