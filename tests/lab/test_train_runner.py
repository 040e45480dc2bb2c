"""Real training runs as traces: the budget is kept on every axis, costs add up, an interrupted run continues."""

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest
import torch
from rich.console import Console
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.compare.arms import Arm, arms
from rolltree.compare.compare import compare
from rolltree.compare.names import COSTS
from rolltree.compare.runner import Conditions, Shelf, Spec
from rolltree.compare.sources import roots
from rolltree.compare.trace import LabError
from rolltree.compare.train_runner import TrainRunner, read_run, settings
from rolltree.errors import ModelError, RolltreeError
from rolltree.metrics.log import read_metrics
from rolltree.policy.load import load_model
from rolltree.recipe.recipe import Counter
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item, Reply, Split, Verdict
from studies.lab.nano.tokenizer import build_tokenizer

SMALL = (("train.checkpoint_every", 0), ("train.forests_every", 0), ("train.max_tokens", 6), ("train.prompts", 2))
STEP = 2 * 8 * 6
"""Most tokens one step can decode."""


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
    base = {"task": "arithmetic", "budget": 250.0, "model": model, "eval_every": 2, "eval_items": 2, "eval_samples": 2}
    return Conditions(**{**base, **changes})


@dataclass(frozen=True)
class Early:
    """Right when the answer begins with one of the first half of the characters: a random policy half solves it."""

    name: str = "early"
    level: int = 0
    stop: tuple[str, ...] = ()
    max_tokens: int = 4
    max_turns: int = 0
    right: str = "".join(map(chr, range(32, 80)))

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        for i in count():
            yield Item(f"{split}{seed}-{i}", f"{i % 10}=", True)

    def start(self, item: Item) -> tuple[Any, str | None]:
        return None, None

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        raise NotImplementedError

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        return Verdict(float(text[:1] != "" and text[0] in self.right), answer=text[:1] or None)


def early(name, *, level=None):
    return Early(right="") if level else Early()


def run(tmp_path, model, tick=lambda cost, doing: None, knobs=SMALL, **changes):
    spec = Spec(Arm("grpo", "grpo", knobs), 3, conditions(model, **changes))
    return TrainRunner(early).run(spec, tmp_path / "run", tick)


@pytest.mark.parametrize("axis", ["decoded", "trained"])
def test_the_budget_is_spent_and_hardly_more(tmp_path, model, axis):
    trace = run(tmp_path, model, axis=axis)
    x, y = trace.curve("pass@1", axis)
    assert 250 <= x[-1] < 250 + 2 * STEP
    assert x[0] == 0
    assert ((y >= 0) & (y <= 1)).all()
    spent = [row["decoded"] for row in trace.rows]
    assert spent == sorted(spent)
    assert trace.mean("sharing") == pytest.approx(1.0)
    assert 0 < trace.mean("unique") <= 1
    assert len(trace.items) == 2
    assert all(t.samples == 2 for t in trace.items.values())


def test_a_budget_of_trained_tokens_is_given_up_when_nothing_is_learned_from(tmp_path, model):
    with pytest.raises(LabError, match="trained no token in 25 steps"):
        run(tmp_path, model, axis="trained", level=1, eval_every=25)


@pytest.mark.parametrize("knobs", [(("group", "2, 4 at 50%"),), (("optim.lr", "1e-3->0 over 100%"),)])
def test_shares_of_a_run_are_refused_where_it_has_no_end(model, knobs):
    spec = Spec(Arm("grpo", "grpo", (*SMALL, *knobs)), 3, conditions(model, axis="trained"))
    with pytest.raises(LabError, match="takes shares of a run, which no budget of trained tokens gives"):
        TrainRunner(early).check(spec)
    TrainRunner(early).check(replace(spec, conditions=conditions(model)))


def test_a_run_stopped_midway_continues_to_the_same_trace(tmp_path, model):
    often = (("train.checkpoint_every", 2), *SMALL[1:])
    whole = run(tmp_path / "whole", model, knobs=often)

    def stop(cost, doing):
        if cost > 200:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", model, stop, often)
    continued = run(tmp_path / "cut", model, knobs=often)

    def timeless(trace):
        return [{k: v for k, v in row.items() if k not in ("seconds", "time/processor")} for row in trace.rows]

    assert timeless(continued) == timeless(whole)
    assert continued.items == whole.items


def test_two_recipes_are_compared_end_to_end(tmp_path, model):
    chosen = arms(["grpo", "rloo"], [f"{k}={v}" for k, v in SMALL])
    made = compare(chosen, conditions(model), [0], Shelf(tmp_path, TrainRunner()), console=Console(file=io.StringIO()))
    assert set(made.headline) == {"grpo", "rloo"}
    start = {t.seed: t.curve("pass@1")[1][0] for t in made.of("grpo")}
    assert start == {t.seed: t.curve("pass@1")[1][0] for t in made.of("rloo")}


def test_knobs_reach_whom_they_are_meant_for():
    spec = Spec(
        Arm("grpo", "grpo", (("group", 4), ("optim.lr", 0.5), ("train.prompts", 3))), 1, Conditions("arithmetic", 9.0)
    )
    made = settings(spec)
    assert (made.optim.lr, made.prompts, made.seed, made.decoded) == (0.5, 3, 1, 9)


@pytest.mark.papers("vade")
@pytest.mark.parametrize(
    ("arm", "changes", "says"),
    [
        (Arm("a", "grppo"), {}, "grpo"),
        (Arm("a", "grpo", (("grup", 4),)), {}, "group"),
        (Arm("a", "grpo", (("optim.rl", 4),)), {}, "lr"),
        (Arm("a", "grpo", (("group", "x"),)), {}, "group=x of 'a' is no int"),
        (Arm("a", "grpo", (("group", 4.5),)), {}, "group=4.5 of 'a' is no int"),
        (Arm("a", "grpo", (("optim.lr", "x"),)), {}, "lr=x of 'a' is no float"),
        (Arm("a", "grpo", (("optim.betas", 3),)), {}, "betas=3 of 'a' is no tuple"),
        (Arm("a", "grpo", (("control", "vade"), ("control.pool", "x"))), {}, "pool=x of 'a' is no int"),
        (Arm("a", "grpo", (("train.seed", 4),)), {}, "--first-seed"),
        (Arm("a", "grpo", (("train.decoded", 4),)), {}, "--budget"),
        (Arm("a", "grpo", (("train.eval_samples", 4),)), {}, "--eval-samples"),
        (Arm("a", "grpo"), {"task": "arithmetik"}, "arithmetic"),
        (Arm("a", "grpo"), {"model": "/nowhere"}, "nowhere"),
    ],
)
def test_bad_names_are_refused_with_the_near_one(model, arm, changes, says):
    with pytest.raises((RolltreeError, TaskError, ModelError), match=says):
        TrainRunner().check(Spec(arm, 0, conditions(**{"model": model, **changes})))


def test_a_knob_puts_another_control_over_a_recipe():
    (arm,) = arms(["grpo"], ["control=vade", "control.pool=8"])
    made = TrainRunner().made_of(Spec(arm, 0, conditions("nano")))
    assert "Vade" in {one.name for one in roots(tuple(made))}
    (bare,) = arms(["grpo"], ["control.pool=8"])
    with pytest.raises(LabError, match=r"control\.pool is set for 'grpo' but no control"):
        TrainRunner().made_of(Spec(bare, 0, conditions("nano")))


def test_the_first_and_the_last_evaluation_may_ask_more_items(tmp_path, model):
    on = conditions(model, end_items=5)
    made = TrainRunner(early).run(Spec(Arm("grpo", "grpo", SMALL), 0, on), tmp_path / "run", lambda cost, doing: None)
    evals = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if line["kind"] == "eval"]
    assert [line["eval/items"] for line in evals] == [5, *[2] * (len(evals) - 2), 5]
    assert len(evals) > 2
    assert made.first.keys() == made.items.keys()
    assert len(made.items) == 5
    assert made.hard() is not None
    steps = [line for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if line["kind"] == "train"]
    for name in COSTS:
        assert made.total(name) == pytest.approx(sum(line.get(name) or 0.0 for line in steps)), name
    spent = [sum(line.get(f"budget/{n}", 0.0) for line in steps) for n in ("decoded", "prefilled", "packed")]
    weights = sum(p.numel() for p in load_model(model).model.parameters())
    assert made.total("budget/flops") == pytest.approx(weights * (2 * (spent[0] + spent[1]) + 6 * spent[2]))
    assert made.total("optim/updates") > 0
    assert made.mean("budget/trained") is not None, "the counter of grpo's card"


@pytest.mark.papers("vcpo")
def test_a_step_that_does_not_measure_the_counter_stands_at_its_rest(tmp_path, monkeypatch):
    line = {"kind": "train", "budget/decoded_total": 5.0, "time/total": 1.0, "optim/step_factor": 0.4}
    lines = [line, {k: v for k, v in line.items() if k != "optim/step_factor"}]
    monkeypatch.setattr("rolltree.compare.train_runner.read_metrics", lambda path: lines)
    monkeypatch.setattr("rolltree.compare.train_runner.noted", lambda path: (None, None))
    read = read_run(tmp_path, tmp_path, "vcpo", 0, 4, Counter("optim/step_factor", rest=1.0))
    assert [row["optim/step_factor"] for row in read.rows] == [0.4, 1.0]
