"""TRL's asynchronous trainer needs a GPU kernel; its data set and collator, which consume a worker, run here."""

from __future__ import annotations

import time

import numpy as np
import pytest
from accelerate import PartialState

import rolltree
from rolltree.credit.registry import load_credit
from rolltree.engine.local import LocalEngine
from rolltree.generate.independent import Independent
from rolltree.integrations.errors import AdaptError
from rolltree.integrations.rows import Row
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Parts
from rolltree.testing.faulty import Flaky
from rolltree.testing.tiny import CODEC
from tests.adapt.small import items_of

asynchronous = pytest.importorskip(
    "trl.experimental.async_grpo.async_grpo_trainer", reason="this TRL has no asynchronous GRPO"
)
FLAT = Parts("flat", Independent(4), load_credit("rloo"), load_objective("clipped"))


def worker_of(task, recipe=FLAT, **knobs):
    from rolltree.integrations.trl import TreeWorker

    return TreeWorker(recipe, task, items_of(task), LocalEngine("nano"), prompts=3, **knobs)


def take(worker, count):
    return [worker.rollout_buffer.get(timeout=300) for _ in range(count)]


def test_a_row_whose_credit_changes_becomes_one_sample_per_value():
    from rolltree.integrations.trl.samples import samples

    row = Row([1, 2], [3, 4, 5, 6], [-0.1, -0.2, 0.0, -0.3], [1, 1, 0, 1], [0.5, -1.0, 0.0, 0.5], 1.0, 3, "item")
    idle = Row([1], [2], [-0.1], [0], [0.0], 1.0, 3, "item")
    made = samples([row, idle], CODEC, version=7, group=2, at=1.0)
    assert [(s.advantage, s.completion_mask.tolist()) for s in made] == [
        (-1.0, [0, 0, 0, 1, 0, 0]),
        (0.5, [0, 0, 1, 0, 0, 1]),
    ]
    assert all((s.model_version, s.group_id, s.input_ids.tolist()) == (7, 2, [1, 2, 3, 4, 5, 6]) for s in made)
    flat = sum(s.advantage * s.completion_mask for s in made)
    assert flat.tolist() == [0, 0, 0.5, -1.0, 0, 0.5]


def test_trls_data_set_and_collator_take_what_the_worker_makes():
    PartialState()  # TRL's logger wants it, and a trainer would have made it
    worker = worker_of(rolltree.load_task("arithmetic"), queue_size=16)
    data = asynchronous.RolloutQueueDataset(worker.rollout_buffer, lambda: 0, worker.check_health, 60.0, {
        name: [] for name in ("sample/dropped_stale_total", "sample/rollout_queue_size", "sample/time_in_queue_s",
                              "sample/staleness_mean", "sample/staleness_max")})  # fmt: skip
    try:
        worker.start()
        stream = iter(data)
        taken = [next(stream) for _ in range(12)]
    finally:
        worker.stop()
    worker.stop()
    row = asynchronous.TreeRow()
    for sample in taken:
        row.add(sample)
    batch = asynchronous.DataCollatorForRollout(pad_token_id=0).torch_call([[row]])
    trained = sum(int(sample["completion_mask"].sum()) for sample in taken)
    assert batch["token_index"].numel() == trained
    assert batch["input_ids"].shape[1] < sum(len(sample["input_ids"]) for sample in taken), "prompts are shared"
    assert all(np.isfinite(sample["old_log_probs"]).all() for sample in taken)
    assert worker.metrics_queue.get_nowait()["rolltree/leaves"] == 12


def test_samples_carry_the_trainers_number_of_the_weights_that_wrote_them():
    worker = worker_of(rolltree.load_task("arithmetic"), queue_size=4)
    model = rolltree.load("nano").model
    try:
        worker.start()
        take(worker, 4)
        for number in (10, 11):
            worker.pause()
            # Like TRL, parameters only: tied ones come once.
            worker.send_weights((name, p) for name, p in model.named_parameters())
            worker.resume()
            worker.update_model_version(number)
        seen, enough = set(), time.monotonic() + 60
        while 11 not in seen and time.monotonic() < enough:
            seen |= {sample.model_version for sample in take(worker, 1)}
        assert max(seen) == 11
        assert worker.engine.version == 2
    finally:
        worker.stop()


def test_failed_leaves_become_no_samples_and_are_counted():
    worker = worker_of(Flaky(rolltree.load_task("arithmetic"), "verify"))
    try:
        worker.start()
        numbers = worker.metrics_queue.get(timeout=300)
    finally:
        worker.stop()
    assert numbers["rolltree/failed_leaves"] > 0
    assert numbers["rolltree/samples"] <= numbers["rolltree/leaves"] - numbers["rolltree/failed_leaves"]


def test_a_worker_that_crashed_says_so():
    worker = worker_of(rolltree.load_task("arithmetic"))
    worker.parts = None
    try:
        worker.start()
        assert worker._job is not None
        worker._job.exception(timeout=300)
        with pytest.raises(AdaptError, match="growing rollouts crashed: AttributeError"):
            worker.check_health(60)
    finally:
        worker.stop()
