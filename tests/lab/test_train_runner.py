"""Real training runs as traces: the budget is kept on every axis, costs add up, an interrupted run continues."""

import io

import pytest
import torch
from rich.console import Console
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.errors import RolltreeError
from rolltree.lab.arms import Arm, arms
from rolltree.lab.compare import compare
from rolltree.lab.nano.tokenizer import build_tokenizer
from rolltree.lab.runner import Conditions, Shelf, Spec
from rolltree.lab.train_runner import TrainRunner, settings

SMALL = (("train.checkpoint_every", 1), ("train.forests_every", 0), ("train.max_tokens", 6), ("train.prompts", 2))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A random policy of a few thousand parameters in a folder."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = build_tokenizer(256)
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=16, intermediate_size=24, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=256, tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id, bos_token_id=None, pad_token_id=None,
        )
    ).save_pretrained(folder)  # fmt: skip
    tokenizer.save_pretrained(folder)
    return str(folder)


def conditions(model, **changes):
    base = {"task": "arithmetic", "budget": 600.0, "model": model, "eval_every": 2, "eval_items": 3, "eval_samples": 2}
    return Conditions(**{**base, **changes})


def run(tmp_path, model, tick=lambda cost, doing: None, **changes):
    spec = Spec(Arm("grpo", "grpo", SMALL), 3, conditions(model, **changes))
    return TrainRunner().run(spec, tmp_path / "run", tick)


@pytest.mark.parametrize("axis", ["decoded", "trained"])
def test_the_budget_is_spent_and_hardly_more(tmp_path, model, axis):
    trace = run(tmp_path, model, axis=axis)
    x, y = trace.curve("pass@1", axis)
    assert 600 <= x[-1] < 600 + 3 * 2 * 8 * 6
    assert x[0] == 0
    assert ((y >= 0) & (y <= 1)).all()
    spent = [row["decoded"] for row in trace.rows]
    assert spent == sorted(spent)
    assert trace.mean("sharing") == pytest.approx(1.0)
    assert 0 < trace.mean("unique") <= 1
    assert len(trace.items) == 3
    assert all(t.samples == 2 for t in trace.items.values())


def test_a_run_stopped_midway_continues_to_the_same_trace(tmp_path, model):
    whole = run(tmp_path / "whole", model)

    def stop(cost, doing):
        if cost > 250:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", model, stop)
    continued = run(tmp_path / "cut", model)

    def timeless(trace):
        return [{k: v for k, v in row.items() if k != "seconds"} for row in trace.rows]

    assert timeless(continued) == timeless(whole)
    assert continued.items == whole.items


def test_two_recipes_are_compared_end_to_end(tmp_path, model):
    chosen = arms(["grpo", "rloo"], [f"{k}={v}" for k, v in SMALL])
    made = compare(
        chosen, conditions(model), [0, 1], Shelf(tmp_path, TrainRunner()), console=Console(file=io.StringIO())
    )
    assert set(made.headline) == {"grpo", "rloo"}
    start = {t.seed: t.curve("pass@1")[1][0] for t in made.of("grpo")}
    assert start == {t.seed: t.curve("pass@1")[1][0] for t in made.of("rloo")}


def test_knobs_reach_whom_they_are_meant_for():
    spec = Spec(
        Arm("grpo", "grpo", (("group", 4), ("optim.lr", 0.5), ("train.prompts", 3))), 1, Conditions("arithmetic", 9.0)
    )
    made = settings(spec)
    assert (made.optim.lr, made.prompts, made.seed, made.decoded) == (0.5, 3, 1, 9)


@pytest.mark.parametrize(
    ("arm", "changes", "says"),
    [
        (Arm("a", "grppo"), {}, "grpo"),
        (Arm("a", "grpo", (("grup", 4),)), {}, "group"),
        (Arm("a", "grpo", (("optim.rl", 4),)), {}, "lr"),
        (Arm("a", "grpo"), {"task": "arithmetik"}, "arithmetic"),
        (Arm("a", "grpo"), {"model": "/nowhere"}, "nowhere"),
    ],
)
def test_bad_names_are_refused_with_the_near_one(model, arm, changes, says):
    with pytest.raises(RolltreeError, match=says):
        TrainRunner().check(Spec(arm, 0, conditions(model, **changes)))
