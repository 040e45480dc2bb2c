"""Coarse weights: which values they have, and that both sides have the same."""

import asyncio
import copy

import numpy as np
import pytest
import torch

import rolltree
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.errors import ModelError, RolltreeError
from rolltree.policy.precision import TILE, linear_weights, round_forward, rounded, rounded_state
from rolltree.training.config import LoraKnobs, TrainConfig, TrainError
from rolltree.training.learner import make_learner
from tests.engine import tiny
from tests.train.toy import KNOBS, Early, tiny_policy

FEW = {**KNOBS, "steps": 2, "eval_every": 0, "forests_every": 0, "checkpoint_every": 0}

COARSE = ["bf16", "int8", "int4", "fp8", "fp8-block"]
STEP = {"bf16": 2**-8, "fp8": 2**-4, "fp8-block": 2**-4}
"""Largest relative error of a number that is not subnormal: half a unit in the last place."""


def weight(rows=300, columns=200, dtype=torch.float32):
    made = torch.randn(rows, columns, generator=torch.Generator().manual_seed(0)).to(dtype)
    made[7] *= 1e6
    made[11] = 0
    return made


@pytest.mark.parametrize("precision", COARSE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_is_near_and_rounds_no_second_time(precision, dtype):
    fine = weight(dtype=dtype)
    coarse = rounded(fine, precision)
    assert coarse.dtype == dtype
    assert (coarse[11] == 0).all()
    torch.testing.assert_close(rounded(coarse, precision), coarse, rtol=1e-6, atol=0)
    if precision == "int8":
        scale = fine.abs().amax(1, keepdim=True) / 127
        assert ((coarse - fine).abs() <= scale / 2 + 1e-7).all()
        levels = torch.where(scale > 0, coarse / scale, 0)
        torch.testing.assert_close(levels, levels.round(), atol=1e-3, rtol=0)
        assert len(levels[0].round().unique()) <= 255
    elif precision == "int4":
        runs = fine.reshape(-1, 16)
        scale = runs.abs().amax(1, keepdim=True) / 7
        assert ((coarse.reshape(-1, 16) - runs).abs() <= scale / 2 + 1e-7).all()
    else:  # the large row leaves its block few levels, so the other blocks are looked at
        rest, kept = fine[TILE:], coarse[TILE:]
        relative = ((kept - rest).abs() / rest.abs())[rest.abs() > 0.1]
        assert relative.max() <= STEP[precision] * 1.001


def test_one_large_row_costs_its_block_and_not_its_neighbours_channels():
    fine = weight()
    channel, block = ((rounded(fine, p) - fine).abs() for p in ("fp8", "fp8-block"))
    others = [row for row in range(TILE) if row not in (7, 11)]
    assert block[others].mean() > 1.2 * channel[others].mean()
    torch.testing.assert_close(block[TILE:].mean(), channel[TILE:].mean(), rtol=0.2, atol=0)


@pytest.mark.parametrize("precision", COARSE)
def test_the_trained_policy_is_the_sampled_one_where_both_round_alike(precision):
    model = copy.deepcopy(tiny.llama())
    prefix = np.array([3, 1, 4, 1, 5], np.int32)

    async def sampled(how):
        engine = LocalEngine(model, tiny.Letters(), precision=how, dtype=torch.float64)
        first = await engine.submit(Request(prefix, Sampling(20, seed=1, ignore_eos=True)))
        await engine.update_weights({k: 1.1 * v for k, v in model.state_dict().items()}, 1)
        second = await engine.submit(Request(prefix, Sampling(20, seed=1, ignore_eos=True)))
        await engine.close()
        return first, second

    first, second = asyncio.run(sampled(precision))
    for sample, factor in ((first, 1.0), (second, 1.1)):
        trained = copy.deepcopy(model).double()
        with torch.no_grad():
            for parameter in trained.parameters():
                # As the engine has them: rounded in the type they came in.
                parameter.copy_((parameter.float() * factor).double())
        gaps = {}
        for how in (precision, "full"):
            own = copy.deepcopy(trained).float()
            round_forward(own, how)
            ids = torch.tensor([[*prefix.tolist(), *sample.actions.tolist()]])
            logp = torch.log_softmax(own(ids).logits[0].double(), -1)[len(prefix) - 1 : -1]
            mine = logp[torch.arange(20), torch.tensor(sample.actions, dtype=torch.long)].detach().numpy()
            gaps[how] = np.abs(mine - sample.logp).max()
        assert gaps[precision] < 1e-4
        assert gaps["full"] > 5 * gaps[precision]


def test_gradients_pass_straight_through_and_copies_are_their_own():
    model = copy.deepcopy(tiny.llama())
    names = linear_weights(model)
    assert len(names) == 2 * 7
    assert not any("embed" in name or "lm_head" in name for name in names)
    round_forward(model, "int8")
    name, layer = next(iter(names.items()))
    x = torch.randn(3, layer.in_features)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, x.sum(0).expand_as(layer.weight))
    assert set(model.state_dict()) == set(tiny.llama().state_dict())
    other = copy.deepcopy(model)
    with torch.no_grad():
        layer.weight.zero_()
    assert linear_weights(other)[name](x).abs().sum() > 0
    assert layer(x).abs().sum() == 0


def test_only_named_weights_are_rounded():
    state = tiny.llama().state_dict()
    names = frozenset(linear_weights(tiny.llama()))
    after = rounded_state(state, names, "int8")
    for name, value in state.items():
        assert torch.equal(after[name], value) == (name not in names)


def test_what_cannot_be_rounded_is_one_sentence(tmp_path):
    with pytest.raises(RolltreeError, match="unknown precision 'int3'"):
        tiny.engine(precision="int3")
    with pytest.raises(ModelError, match="no linear layers"):
        tiny.engine(tiny.gpt2(), precision="int8")
    with pytest.raises(RolltreeError, match="engine_precision"):
        TrainConfig(engine_precision="int3")
    with pytest.raises(TrainError, match="lora"):
        make_learner(None, tiny.llama(), TrainConfig(train_precision="int8", lora=LoraKnobs()))
    given = tiny.engine()
    with pytest.raises(EngineError, match="given its engine"):
        rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path, engine=given, engine_precision="int8", **FEW)
    with pytest.raises(EngineError, match="--engine local"):
        rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path, engine="vllm", engine_precision="int8", **FEW)


def test_the_mismatch_tells_whether_both_sides_round_alike(tmp_path):
    found = {}
    for engine, trainer in (("int8", "int8"), ("int8", "full"), ("full", "full")):
        run = rolltree.train(
            "grpo", tiny_policy(), Early(), out=tmp_path / f"{engine}-{trainer}", engine_precision=engine,
            train_precision=trainer, **FEW,
        )  # fmt: skip
        found[engine, trainer] = run.last("train")["policy/mismatch"]
    assert found["int8", "int8"] < 1e-5
    assert found["full", "full"] < 1e-5
    assert found["int8", "full"] > 1e-4
