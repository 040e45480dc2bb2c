"""Experts chosen anew for one request: what it changes, and that nothing of it stays."""

from functools import cache

import numpy as np
import pytest
import torch

from studies.narrow.rewiring import (
    Rewiring,
    adapted,
    beginning,
    decoded,
    disturbed,
    languages,
    loss,
    rewired,
    routers,
    trained,
    written,
)  # fmt: skip


@cache
def made():
    return trained(0, steps=6)


def text(seed=0):
    return written(languages(0)[0], 1, np.random.default_rng(seed), 40)


def test_zero_vectors_change_nothing_and_hooks_are_gone_afterwards():
    model, ids = made(), text()
    with torch.no_grad():
        before = model(ids).logits
        with rewired(model, [torch.zeros(8), torch.zeros(8)]) as chosen:
            torch.testing.assert_close(model(ids).logits, before)
        assert len(chosen) == 2
        assert chosen[0].shape == (40, 2)
        with rewired(model, [100 * torch.eye(8)[3], None]) as chosen:
            assert not torch.equal(model(ids).logits, before)
        assert (chosen[0] == 3).any(-1).all()
        torch.testing.assert_close(model(ids).logits, before)


def test_steps_lower_the_loss_of_the_text_they_are_made_on_and_move_no_weight():
    model, ids = made(), text()
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    how = Rewiring(steps=5, rate=0.1)
    zero = beginning(model, ids, how)
    mine = adapted(model, ids, how, zero)
    with torch.no_grad():
        assert loss(model, ids, mine) < loss(model, ids, zero)
    assert all(torch.equal(v, weights[k]) for k, v in model.state_dict().items())
    assert all(not z.any() for z in zero if z is not None), "the next request begins at zero"


def test_a_share_of_the_layers_is_the_surest_ones():
    model = made()
    with torch.no_grad():
        gate = routers(model)[1]
        before = gate.weight.clone()
        gate.weight.mul_(50.0)
    chosen = beginning(model, text(), Rewiring(share=0.5))
    with torch.no_grad():
        gate.weight.copy_(before)
    assert [delta is None for delta in chosen] == [True, False]


def test_decoding_adapts_every_few_tokens_and_a_disturbance_ends():
    model, prompt = made(), text()[0].tolist()
    weights = [gate.weight.clone() for gate in routers(model)]
    with disturbed(model, 1, 2.0):
        assert not torch.equal(routers(model)[0].weight, weights[0])
        plain = decoded(model, prompt, 6, None, 0)
        moved = decoded(model, prompt, 6, Rewiring(steps=2, rate=2.0, every=3), 0)
        again = decoded(model, prompt, 6, Rewiring(steps=2, rate=2.0, every=3), 0)
    assert moved == again
    assert len(plain) == len(moved) == 6
    assert all(torch.equal(gate.weight, w) for gate, w in zip(routers(model), weights, strict=True))


def test_a_failed_reading_leaves_no_disturbance_behind():
    model = made()
    before = routers(model)[0].weight.clone()
    with pytest.raises(RuntimeError, match="in between"), disturbed(model, 1, 1.0):
        raise RuntimeError("in between")
    assert torch.equal(routers(model)[0].weight, before)
