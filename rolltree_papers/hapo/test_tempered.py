"""A temperature per token."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np
import pytest
import torch

from rolltree.generate.runner import grow
from rolltree.recipe.registry import load_recipe
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import SpellTask, tiny_engine
from rolltree_papers.hapo import ByEntropy, Tempered


def entropy(logits: np.ndarray) -> float:
    p = np.exp(logits - np.logaddexp.reduce(logits))
    return -float((p * np.log(p)).sum())


@pytest.mark.parametrize("kind", [np.array, torch.tensor])
def test_uncertain_tokens_are_drawn_hotter_and_certain_ones_colder(kind) -> None:
    sure, unsure, middle = [4.0, 0.0, 0.0], [0.1, 0.0, 0.0], [1.5, 0.0, 0.0]
    least, pivot, most = (float(np.log(entropy(np.array(x)))) for x in (sure, middle, unsure))
    hook = Tempered(2, 0.05, pivot, most, least).hook
    assert hook is not None
    for logits, temperature in ((sure, 0.95), (middle, 1.0), (unsure, 1.05)):
        np.testing.assert_allclose(np.asarray(hook([], kind(logits))), np.array(logits) / temperature, rtol=1e-6)
    assert ByEntropy(0.05, 0.0, 1e-3, 1e-3)([], np.array([9.0, 0.0]))[0] == pytest.approx(9 / 0.95)


def test_equal_entropies_set_no_temperature() -> None:
    seen = float(np.log(entropy(np.array([1.0, 0.0]))))
    hook = Tempered(2, 0.5, seen, seen, seen).hook
    assert hook is not None
    np.testing.assert_allclose(hook([], np.array([1.0, 0.0])), [1.0, 0.0], atol=1e-9)


def test_rollouts_are_tempered_once_a_scale_is_known_and_say_so_in_their_distribution() -> None:
    task = SpellTask()
    for pivot, tempered in ((None, False), (0.9, True)):
        strategy = Tempered(6, 0.5, pivot, 1.2, -2.0)
        [tree] = asyncio.run(grow(strategy, tiny_engine(), task, islice(task.items("train"), 1), seed=0))
        gaps = [float(np.abs(leaf.logp - leaf.sampling_logprob).max()) for leaf in tree.leaves()]
        assert len(gaps) == 6
        assert all((gap > 1e-4) == tempered for gap in gaps)
        assert all("reward" in leaf.scores for leaf in tree.leaves())
        assert any("tau" in e.numbers for e in tree.events) == tempered


def test_it_keeps_the_contract_and_hapo_can_sample_with_it() -> None:
    check_strategy(Tempered(4, 0.3, 0.9, 1.2, -2.0))
    parts = load_recipe("hapo").build()
    assert isinstance(parts.strategy, Tempered)
    assert "sampled" in parts.objective.needs
    assert "sampled" not in load_recipe("hapo", tau=0.0).build().objective.needs
