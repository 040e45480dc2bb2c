"""Several trainer ranks make the same step as one: real processes, gloo and FSDP2."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import rolltree
from rolltree.cli import main
from rolltree.credit.fold import expand, leaf_weights
from rolltree.metrics.log import read_metrics
from rolltree.objective.batch import Batch, Level
from rolltree.objective.registry import load_objective
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.lora import with_lora
from rolltree.recipe.grpo import Grpo
from rolltree.training.backward import DivergedError, StepKnobs
from rolltree.training.config import LoraKnobs, Optim, TrainConfig, TrainError
from rolltree.training.learner import make_learner
from rolltree.training.loop import RunEvent
from rolltree.training.optimizer import make_optimizer
from rolltree.training.pack import micro_batches
from rolltree.training.ranks.driver import crewed, shared_out
from rolltree.training.start import Result
from rolltree.training.step import Learner, Work
from rolltree.training.step_metrics import Reread
from rolltree.tree.node import TRAINER_ENTROPY, TRAINER_LOGP
from rolltree.tree.table import Table
from tests.policy.forests import tiny_llama
from tests.train.test_step import flat, rollouts
from tests.train.toy import KNOBS, Early, timeless, tiny_policy

KNOBS_2 = StepKnobs(token_budget=25)
OPTIM = Optim(lr=1e-2, warmup=1, clip_norm=0.05, minibatches=2, epochs=2, weight_decay=0.1)
PARTS = Grpo().build()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def learner(optim: Optim = OPTIM) -> Learner:
    policy = LanguagePolicy(tiny_llama())
    anchors = {"reference": LanguagePolicy(tiny_llama(seed=1)), "previous": LanguagePolicy(tiny_llama(seed=2))}
    return Learner(policy, make_optimizer(policy, optim), optim, anchors)


class Explodes:
    """An objective whose loss leaves all bounds on the shortest micro-batch, which the last rank gets."""

    level: Level = "token"
    needs: frozenset[str] = frozenset()

    def __init__(self, least: int) -> None:
        self.least = least

    def __call__(self, batch: Batch) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        return batch.logp.sum() * (1e9 if len(batch.logp) == self.least else 1.0), {}


def noted(view: Table, read: Reread) -> list[object]:
    read.write()
    return [node.notes.pop(name, None) for node in view.nodes for name in (TRAINER_LOGP, TRAINER_ENTROPY)]


def step(mine: Learner, name: str, seed: int, knobs: StepKnobs = KNOBS_2) -> tuple[dict[str, float], list[object]]:
    """One step on trees of very different size; an objective over paths, over tokens, or with a step-wide statistic."""
    view, folded, advantage = rollouts(seed, trees=5)
    objective = load_objective(name, kl=0.1, **({"kl_anchor": "previous"} if seed % 2 else {}))
    paths = expand(view, advantage, leaf_weights(view, "token")) if objective.level == "path" else None
    read = Reread(view)
    numbers = mine.step(objective, view, folded, paths, version=seed, knobs=knobs, watchers=(read,))
    return numbers, noted(view, read)


@pytest.mark.papers("bapo")
def test_three_ranks_make_the_steps_that_one_makes() -> None:
    alone, together = learner(), learner()
    with crewed(together, PARTS, 3):
        for seed, name in enumerate(["clipped", "gspo", "bapo", "clipped", "gspo", "clipped"]):
            # A large budget leaves two ranks without work; the others are uneven.
            knobs = KNOBS_2 if seed < 4 else StepKnobs(token_budget=10**6)
            (a, read_a), (b, read_b) = step(alone, name, seed, knobs), step(together, name, seed, knobs)
            assert a["optim/micro_batches"] > 3 if seed < 4 else a["optim/micro_batches"] == 2, a
            assert a.keys() == b.keys()
            for key, value in a.items():
                assert b[key] == pytest.approx(value, rel=1e-7, abs=1e-9), (seed, key)
            assert a["optim/grad_norm"] > OPTIM.clip_norm
            assert torch.allclose(flat(alone.policy.model), flat(together.policy.model), atol=1e-9), name
            assert read_a == read_b
            if seed == 2:
                # Its state is that of one rank: each goes on from the other's.
                one, several = alone.state_dict(), together.state_dict()
                model = {k: v.clone() for k, v in together.policy.model.state_dict().items()}
                together.policy.model.load_state_dict(alone.policy.model.state_dict())
                together.load_state_dict(one)
                alone = learner()
                alone.policy.model.load_state_dict(model)
                alone.load_state_dict(several)
            if seed == 3:
                alone.reanchor("reference")
                together.reanchor("reference")
        before = flat(together.policy.model).clone()
        view, folded, _ = rollouts(9)
        micros = micro_batches(view, folded, 25)
        few = min(len(m.packed.target) for m in micros)
        with pytest.raises(DivergedError, match="limit 10000") as caught:
            together.step(Explodes(few), view, folded, None, version=9, knobs=KNOBS_2)
        assert caught.value.micro is not None
        assert len(caught.value.micro.packed.target) == few
        assert {t.id for t in caught.value.trees} == {view.trees[i].id for i in caught.value.micro.trees}
        assert torch.equal(flat(together.policy.model), before)
    assert together.crew is None
    assert not multiprocessing.active_children()


def test_two_ranks_average_the_weights_that_one_does() -> None:
    optim = replace(OPTIM, proximal_decay=0.5)

    def averaging() -> Learner:
        policy, held = LanguagePolicy(tiny_llama()), LanguagePolicy(tiny_llama().requires_grad_(False))
        return Learner(policy, make_optimizer(policy, optim), optim, {"ewma": held})

    objective, alone, together = load_objective("decoupled", prox="ewma", bound="truncate"), averaging(), averaging()
    with crewed(together, PARTS, 2):
        for seed in range(2):
            view, folded, _ = rollouts(seed, trees=5)
            told = [m.step(objective, view, folded, None, version=seed, knobs=KNOBS_2) for m in (alone, together)]
            assert told[1] == pytest.approx(told[0], rel=1e-6, abs=1e-9)
        one, several = alone.state_dict(), together.state_dict()
        assert together.averaged == several["averaged"] == one["averaged"] == pytest.approx(2 - 0.5**8)
        for name, value in one["anchors"]["ewma"].items():
            torch.testing.assert_close(several["anchors"]["ewma"][name], value, atol=1e-8, rtol=0)
        assert not torch.allclose(flat(alone.anchors["ewma"].model), flat(alone.policy.model))
        # A restart goes on with the mean and its mass.
        together.load_state_dict({**several, "averaged": 1.0})
        assert together.state_dict()["averaged"] == 1.0


def test_two_ranks_train_adapters_as_one_does() -> None:
    def adapted() -> Learner:
        torch.manual_seed(3)
        model = with_lora(tiny_llama(), rank=2, alpha=4.0, targets=("q_proj", "down_proj"))
        # Adapters begin in single precision, where an optimizer that divides by a gradient's size magnifies rounding.
        policy = LanguagePolicy(model.double())
        anchors = {"reference": LanguagePolicy(tiny_llama(seed=1))}
        return Learner(policy, make_optimizer(policy, OPTIM), OPTIM, anchors)

    def trained(mine: Learner) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in mine.policy.parameters()])

    alone, together = adapted(), adapted()
    frozen = {n: p.clone() for n, p in together.policy.model.named_parameters() if not p.requires_grad}
    start = trained(together)
    with crewed(together, PARTS, 2):
        for seed in (0, 2):
            (a, read_a), (b, read_b) = step(alone, "clipped", seed), step(together, "clipped", seed)
            assert a["optim/micro_batches"] > 2
            assert a["optim/grad_norm"] > 0
            for key, value in a.items():
                assert b[key] == pytest.approx(value, rel=1e-7, abs=1e-9), (seed, key)
            assert torch.allclose(trained(alone), trained(together), atol=1e-9)
            assert read_a == read_b
            if seed == 0:
                # The state holds adapters alone, and is that of one rank.
                together.load_state_dict(deepcopy(alone.state_dict()))
                assert len(together.state_dict()["optimizer"]["state"]) == len(list(together.policy.parameters()))
    assert not torch.equal(trained(together), start)
    for name, value in together.policy.model.named_parameters():
        assert name not in frozen or torch.equal(value, frozen[name]), name


def test_ranks_compute_in_half_precision_beside_a_reference_under_the_adapters() -> None:
    def adapted() -> Learner:
        torch.manual_seed(3)
        config = TrainConfig(
            lora=LoraKnobs(rank=2, targets=("q_proj", "down_proj")), optim=replace(OPTIM, eps=1.0), ranks=2,
            dtype="bfloat16", gradient_checkpointing=True, piece=16,
        )  # fmt: skip
        return make_learner(Grpo(kl=0.1).build(), tiny_llama(exact=False), config)

    alone, together = adapted(), adapted()
    with crewed(together, PARTS, 2):
        for seed in (0, 2):
            (a, _), (b, _) = step(alone, "clipped", seed), step(together, "clipped", seed)
            for key, value in a.items():
                assert b[key] == pytest.approx(value, rel=1e-3, abs=1e-4), (seed, key)
    assert a["policy/kl_reference"] > 0
    for mine, theirs in zip(alone.policy.parameters(), together.policy.parameters(), strict=True):
        assert theirs.dtype == torch.float32
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_shares_are_whole_and_even() -> None:
    view, folded, _ = rollouts(0, trees=30)
    part = micro_batches(view, folded, 40)
    work = Work([load_objective("clipped")] * 2, [part, part[:2]], [1.0, 2.0], [len(part), 2], 0, KNOBS_2, Optim())
    for size in (1, 2, 3, 7):
        shares = shared_out(work, size)
        for number, whole in enumerate(work.parts):
            assert sorted(id(m) for s in shares for m in s.parts[number]) == sorted(map(id, whole))
            loads = [sum(len(m.packed) for m in s.parts[number]) for s in shares]
            assert max(loads) - min(loads) <= max(len(m.packed) for m in whole)
        assert all(s.counts == work.counts and s.scales == work.scales for s in shares)


def run(out: Path, **more: object) -> Result:
    return rolltree.train(Grpo(kl=0.05), tiny_policy(), Early(), out=out, **{**KNOBS, "token_budget": 32, **more})


def test_a_rank_that_dies_ends_the_run_and_one_rank_resumes_it(tmp_path: Path) -> None:
    whole = run(tmp_path / "whole")
    out = tmp_path / "ranks"

    def listen(live: RunEvent) -> None:
        if live.kind == "grown" and live.step == 5:
            os.kill(multiprocessing.active_children()[0].pid or 0, signal.SIGKILL)

    with pytest.raises(TrainError, match=r"trainer rank 1 of 2 ended \(exit code -9\); .* --resume"):
        run(out, ranks=2, listen=listen)
    assert not multiprocessing.active_children()
    again = run(out, resume=True)
    for a, b in zip(timeless(whole.metrics), timeless(again.metrics), strict=True):
        assert a.keys() == b.keys()
        for key, value in a.items():
            close = value if isinstance(value, str) else pytest.approx(value, rel=1e-3, abs=1e-5)
            assert b[key] == close, (a["step"], key)
    # AdamW divides by the gradient's own size, so where that is rounding alone a weight may move either way.
    gap = torch.cat(
        [(a - b).detach().flatten() for a, b in zip(whole.model.parameters(), again.model.parameters(), strict=True)]
    )
    assert float(gap.abs().median()) < 1e-6
    assert float(gap.norm() / flat(whole.model).norm()) < 1e-3


@pytest.mark.slow
def test_the_command_line_trains_with_two_ranks_what_it_trains_with_one(tmp_path: Path) -> None:
    knobs = "--steps 2 --prompts 2 --group 4 --max-tokens 24 --token-budget 128 --eval-every 0 --doctor 0 --json"
    asked = ["train", "grpo", "--task", "countdown", *knobs.split()]
    assert main([*asked, "--out", str(tmp_path / "one")]) == 0
    command = [sys.executable, "-m", "rolltree", *asked, "--ranks", "2", "--out", str(tmp_path / "two")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["why"]
    one, two = (read_metrics(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    assert [line["step"] for line in one] == [line["step"] for line in two] == [1, 2]
    for a, b in zip(one, two, strict=True):
        assert a["optim/grad_norm"] > 0.01
        for name in (
            "optim/loss",
            "optim/grad_norm",
            "policy/entropy",
            "budget/trained",
            "optim/micro_batches",
            "budget/decoded_total",
            "reward/mean",
        ):
            assert b[name] == pytest.approx(a[name], rel=1e-4, abs=1e-6), (a["step"], name)
