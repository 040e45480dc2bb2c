"""Simulated time of a run's own lengths, against sums done on paper, and from a run that was trained."""

import math
from dataclasses import replace

import pytest

from rolltree.compare.arms import arms
from rolltree.compare.runner import Conditions, Spec
from rolltree.compare.train_runner import TrainRunner
from rolltree.compare.watch import lengths
from rolltree.control.schedule import PRESETS
from studies.clock.hardware import Hardware
from studies.simulated import seconds, simulated

PAPER = Hardware(2, slots=2, plateau=1.0, per_sequence=0.0, prefill=0.0, train=0.5, sync=3.0, waves=1)
"""A step takes a second, two engines with two places each, training half a second a token and device."""


def test_lock_step_waits_for_the_longest_rollout_of_each_step():
    steps = [[[2, 5], [1, 1]], [[3, 3], [9, 1]]]
    trained = sum(map(sum, (g for step in steps for g in step))) * 0.5 / 2
    assert seconds(steps, PRESETS["sync"], PAPER) == pytest.approx((5 + 9) + trained + 2 * 3.0)


def test_a_longer_tail_costs_time_though_tokens_are_the_same():
    even, tail = [[[4, 4], [4, 4]]] * 3, [[[1, 1], [1, 13]]] * 3
    apart = seconds(tail, PRESETS["sync"], PAPER) - seconds(even, PRESETS["sync"], PAPER)
    assert apart == pytest.approx(3 * (13 - 4))


def test_a_schedule_that_does_not_wait_takes_less():
    steps = [[[1, 1], [1, 40]], *[[[2, 2], [2, 2]]] * 12]
    free = replace(PAPER, colocated=False)
    assert seconds(steps, PRESETS["slime"], free) < seconds(steps, PRESETS["sync"], free)


def test_a_trained_run_keeps_its_lengths(tmp_path):
    knobs = ["train.prompts=2", "grpo:group=2", "train.max_tokens=12"]
    spec = Spec(arms(["grpo"], knobs)[0], 0, Conditions("arithmetic", 90.0, 1, eval_items=2, eval_samples=2))
    runner = TrainRunner()
    made = runner.run(spec, tmp_path / "run", lambda cost, doing: None)
    steps = lengths(tmp_path / "watched.jsonl")
    told = [row["rollout/length"] for row in made.rows if "rollout/length" in row]
    assert [sum(map(sum, s)) / sum(map(len, s)) for s in steps] == pytest.approx(told)
    took = simulated(made, spec, runner)
    assert took is not None
    assert took > sum(max(map(max, s)) for s in steps) * 0.02
    assert math.isfinite(took)
    tree = Spec(arms(["treepo"])[0], 0, spec.conditions)
    assert simulated(made, tree, runner) is None, "branches share what they decode"
