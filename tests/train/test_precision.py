"""Training in half precision over float32 weights, falling learning rates, adapters as a reference and as a policy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import rolltree
from rolltree.cli import main
from rolltree.errors import ModelError
from rolltree.policy.device import Compute
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.load import load_codec, load_model
from rolltree.policy.lora import Unadapted
from rolltree.policy.packed import pack
from rolltree.policy.publish import weights_of
from rolltree.recipe.grpo import Grpo
from rolltree.training.checkpoint import checkpoints
from rolltree.training.config import LoraKnobs, Optim, TrainConfig, TrainError, check_optim
from rolltree.training.fits import check_fits
from rolltree.training.learner import make_learner
from rolltree.training.optimizer import learning_rate, make_optimizer
from rolltree.tree.table import table
from tests.policy.forests import tiny_llama
from tests.train.test_step import flat, rollouts
from tests.train.toy import KNOBS, Early, timeless, tiny_policy

FEW: dict[str, Any] = {**KNOBS, "steps": 2, "eval_every": 0, "forests_every": 0, "checkpoint_every": 0}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_half_precision_trains_float32_weights_and_loses_no_update(tmp_path: Path) -> None:
    before = flat(tiny_policy().model).clone()
    knobs = {**FEW, "lr": 2e-6, "warmup": 0}
    low = rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "low", dtype="bfloat16", **knobs)
    assert {p.dtype for p in low.model.parameters()} == {torch.float32}
    moved = flat(low.model) != before
    assert (before.bfloat16() != (before + 2e-6).bfloat16()).float().mean() < 0.1, "in bfloat16 they would be lost"
    assert moved.float().mean() > 0.9
    line = low.last("train")
    assert 0 < line["policy/mismatch"] < 0.02, "engine and trainer both compute in bfloat16"


def test_weights_in_half_precision_are_not_trained() -> None:
    policy = LanguagePolicy(tiny_llama(exact=False).bfloat16())
    with pytest.raises(TrainError, match="the trained weights are bfloat16, in which most updates of a small learning"):
        make_optimizer(policy, Optim())


@pytest.mark.parametrize("more", [{"gradient_checkpointing": True}, {"piece": 7, "token_budget": 16}])
def test_less_memory_gives_the_same_run(more: dict[str, Any], tmp_path: Path) -> None:
    # A large eps lets updates follow gradients, of which Adam otherwise takes little more than the sign.
    knobs = {**FEW, "lr": 0.5, "eps": 1.0}
    before = flat(tiny_policy().model).clone()
    whole = rolltree.train(Grpo(kl=0.1), tiny_policy(), Early(), out=tmp_path / "whole", **knobs)
    lean = rolltree.train(Grpo(kl=0.1), tiny_policy(), Early(), out=tmp_path / "lean", **{**knobs, **more})
    assert (flat(whole.model) - before).abs().max() > 1e-3
    assert torch.allclose(flat(whole.model), flat(lean.model), atol=1e-6)
    assert lean.last("train")["optim/grad_norm"] == pytest.approx(whole.last("train")["optim/grad_norm"], rel=1e-4)


def test_a_tree_beyond_the_budget_is_one_micro_batch_in_pieces() -> None:
    view, folded, _ = rollouts(3, trees=1)
    whole, parts = (
        make_learner(Grpo().build(), tiny_llama(exact=False), TrainConfig(piece=piece, token_budget=12))
        for piece in (12, 0)
    )
    from rolltree.training.backward import StepKnobs

    knobs = StepKnobs(token_budget=12)
    a, b = (each.step(Grpo().build().objective, view, folded, None, version=0, knobs=knobs) for each in (whole, parts))
    assert a["optim/micro_batches"] == 1 < b["optim/micro_batches"]
    assert a["budget/packed"] < b["budget/packed"], "the trunk was read more than once"
    assert torch.allclose(flat(whole.policy.model), flat(parts.policy.model), atol=2e-6)


@pytest.mark.papers("vcpo")
def test_objectives_path_by_path_refuse_pieces() -> None:
    from rolltree.recipe.registry import load_recipe

    with pytest.raises(TrainError, match="vcpo needs each path's own gradient, which pieces do not keep"):
        make_learner(load_recipe("vcpo").build(), tiny_llama(exact=False), TrainConfig(piece=8))


def test_learning_rates_rise_and_fall() -> None:
    flat_rate = Optim(lr=1.0, warmup=4)
    assert [learning_rate(flat_rate, u) for u in (1, 2, 4, 9, 900)] == [0.25, 0.5, 1, 1, 1]
    line = replace(flat_rate, lr_schedule="linear", lr_updates=11, lr_floor=0.2)
    rates = [learning_rate(line, u) for u in range(1, 13)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:] == pytest.approx([1 - 0.8 * k / 8 for k in range(1, 9)])
    assert learning_rate(line, 500) == pytest.approx(0.2)
    wave = replace(line, lr_schedule="cosine", lr_floor=0.0)
    assert learning_rate(wave, 8) == pytest.approx(0.5)
    assert learning_rate(wave, 11) > 0, "the last update learns too"
    assert learning_rate(wave, 12) == pytest.approx(0)


def test_a_falling_rate_resumes_exactly_and_not_with_another_end(tmp_path: Path) -> None:
    knobs = {**KNOBS, "eval_every": 0, "lr_schedule": "cosine", "minibatches": 2, "forests_every": 0}
    whole = rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "whole", **knobs)
    rates = [line["optim/lr"] for line in whole.metrics]
    assert rates == sorted(rates, reverse=True)
    assert 0 < rates[-1] < 0.1 * rates[0]
    out = tmp_path / "parts"
    rolltree.train("grpo", tiny_policy(), Early(), out=out, decoded=1, **knobs)
    again = rolltree.train("grpo", tiny_policy(), Early(), out=out, resume=True, **knobs)
    assert timeless(again.metrics) == timeless(whole.metrics)
    with pytest.raises(TrainError, match=r"started with train\.steps=6, over which its learning rate falls"):
        rolltree.train("grpo", tiny_policy(), Early(), out=out, resume=True, **{**knobs, "steps": 9})


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"lr_schedule": "cosin"}, "there is no optim.lr_schedule 'cosin'; did you mean 'cosine'"),
        ({"lr_floor": 2.0}, "optim.lr_floor=2.0 makes no sense"),
        ({"lr_updates": 3}, "optim.lr_updates=3 end before the warm-up's 5 do"),
    ],
)
def test_rates_that_make_no_sense_are_refused(knobs: dict[str, Any], said: str) -> None:
    with pytest.raises(TrainError, match=said):
        check_optim(Optim(**knobs))


def test_a_rate_that_cannot_fall_is_refused_before_a_model_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(TrainError, match="a run of 3 updates ends before the warm-up's 5 do"):
        rolltree.train("grpo", "no/such-model", Early(), out=tmp_path / "run", steps=3, lr_schedule="cosine")
    assert not (tmp_path / "run").exists()


def test_under_adapters_the_reference_is_the_model_itself() -> None:
    config = TrainConfig(lora=LoraKnobs(rank=2), optim=Optim(lr=0.1, warmup=1))
    learner = make_learner(Grpo(kl=0.1).build(), tiny_llama(exact=False), config)
    reference = learner.anchors["reference"]
    assert isinstance(reference, Unadapted)
    assert reference.model is learner.policy.model
    view, folded, _ = rollouts(1)
    from rolltree.training.backward import StepKnobs

    for version in range(2):
        told = learner.step(Grpo(kl=0.1).build().objective, view, folded, None, version=version, knobs=StepKnobs())
    packed = pack(view, view.loss_mask)
    with torch.no_grad():
        base = LanguagePolicy(tiny_llama(exact=False)).read(packed).logp
        assert torch.allclose(reference.read(packed).logp, base, atol=1e-6)
        assert not torch.allclose(learner.policy.read(packed).logp, base, atol=1e-2)
    assert told["policy/kl_reference"] > 0
    assert not learner.state_dict()["anchors"]["reference"], "a checkpoint holds the model once"
    first = Grpo(kl=0.1).build()
    again = make_learner(first, tiny_llama(exact=False), config, [first, replace(first, anchor=1)])
    again.step(first.objective, view, folded, None, version=0, knobs=StepKnobs())
    again.reanchor("reference")
    with torch.no_grad():
        assert torch.allclose(again.anchors["reference"].read(packed).logp, again.policy.read(packed).logp, atol=1e-6)


def test_weights_under_adapters_are_kept_as_coarse_as_they_are_computed() -> None:
    config = TrainConfig(lora=LoraKnobs(rank=2), dtype="bfloat16")
    learner = make_learner(Grpo().build(), tiny_llama(exact=False), config)
    assert learner.policy.compute == Compute(torch.bfloat16)
    kinds = {(p.requires_grad, p.dtype) for p in learner.policy.model.parameters()}
    assert kinds == {(False, torch.bfloat16), (True, torch.float32)}


def test_a_checkpoint_of_adapters_is_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rolltree.training.start import train

    done = train(
        "grpo", "nano", "arithmetic", out=tmp_path / "run", steps=1, prompts=4, lora=LoraKnobs(rank=2), lr=0.1,
        warmup=0, max_tokens=30, eval_every=0, forests_every=0, quiet=True,
    )  # fmt: skip
    assert done.last("train")["optim/grad_norm"] > 0
    folder = checkpoints(done.path / "checkpoints")[-1].path
    loaded = load_model(folder)
    trained = weights_of(LanguagePolicy(done.model))
    plain = load_model("nano").model.state_dict()
    mine = loaded.model.state_dict()
    assert mine.keys() == plain.keys()
    for name, value in mine.items():
        assert torch.allclose(value, trained[name], atol=1e-6), name
    assert any(not torch.equal(value, plain[name]) for name, value in mine.items())
    assert load_codec(folder).encode("12+3") == load_codec(Path(load_model("nano").path)).encode("12+3")
    assert all(p.requires_grad for p in loaded.model.parameters()), "it can be trained on"
    assert main(["rollout", "grpo", "--policy", str(folder), "--items", "1", "--group", "2", "--json"]) == 0
    about = folder / "adapter_config.json"
    about.write_text(about.read_text().replace("nano", "gone"))
    with pytest.raises(ModelError, match=r"belong to the model .*gone.*, which is not there; put it there, or write"):
        load_model(folder)


def test_a_run_that_cannot_fit_is_refused_with_the_knob_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = TrainConfig(token_budget=4096)
    free = [10**12]
    monkeypatch.setattr("rolltree.training.fits.free_memory", lambda _: free[0])
    check_fits("nano", Grpo().build(), config, engine=True)
    said: list[str] = []
    for free[0] in (120_000_000, 60_000_000, 1_000_000):
        with pytest.raises(TrainError, match=r"training nano needs about 0\.2.. GB on cpu .*activations") as caught:
            check_fits("nano", Grpo().build(), config, engine=True)
        said.append(str(caught.value))
    assert "with --gradient-checkpointing it needs about" in said[0]
    assert "with --gradient-checkpointing --token-budget 1024 it needs about" in said[1]
    assert said[2].endswith("choose a smaller model, or free memory")
    assert main(["train", "grpo", "--out", str(tmp_path / "run")]) == 2
    assert "training nano needs about" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.accelerator.is_available(), reason="this machine has an accelerator")
@pytest.mark.parametrize("verb", ["train", "rollout"])
def test_no_gpu_is_one_sentence(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main([verb, "grpo", "--device", "cuda", "--out", str(out)]) == 2
    err = capsys.readouterr().err
    assert "--device cuda: torch" in err
    assert len(err.strip().splitlines()) == 1
    assert not out.exists()


def needing(*fields: str) -> Any:
    """A credit of which only its needs are asked."""
    return SimpleNamespace(needs=frozenset(fields))


def test_what_a_critic_and_a_credits_reference_read_is_in_half_precision_too() -> None:
    from rolltree.training.readings import make_readings

    model, compute = tiny_llama(exact=False), Compute(torch.bfloat16)
    view, _, _ = rollouts(2)
    readings = make_readings(needing("action:reference", "action:value"), model, Optim(), compute)
    assert readings.critic is not None
    assert readings.reference is not None
    readings.write(view, 10**6, LanguagePolicy(model))
    assert {p.dtype for p in readings.reference.model.parameters()} == {torch.bfloat16}
    assert {b.dtype for b in readings.reference.model.buffers()} == {torch.float32}, "rotations are not narrowed"
    assert {p.dtype for p in readings.critic.trunk.parameters()} == {torch.float32}
    assert readings.learn(view, 10**6)["optim/critic_loss"] > 0
    adapted = make_readings(needing("action:reference"), model, Optim(), compute, adapted=True)
    assert adapted.reference is None
    assert isinstance(adapted.beside(LanguagePolicy(model)).reference, Unadapted)
    assert len(table(view.trees).nodes) == len(view.nodes)
