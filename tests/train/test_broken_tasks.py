"""Tasks that break their contract: it is said at once what is wrong, and a run that can learn nothing ends."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rolltree.analysis.source import open_source
from rolltree.cli.train import closing
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.errors import RolltreeError
from rolltree.generate.strategy import fail_tree
from rolltree.task.protocol import Reply, Verdict
from rolltree.training.config import TrainError
from rolltree.training.start import Result, train
from rolltree.view.state import state_of
from tests.train.toy import KNOBS, Early, Talk, tiny_policy


def answering(answer):
    async def call(self, item, state, text):
        return answer

    return call


def raising(error):
    async def call(self, item, state, text):
        raise error

    return call


VERDICTS = {
    "None": (None, "verify returned None instead of a Verdict"),
    "a number": (1.0, "verify returned 1.0 instead of a Verdict"),
    "NaN": (Verdict(math.nan), "verify returned score=nan, which is no finite number"),
    "infinity": (Verdict(math.inf), "verify returned score=inf"),
    "text": (Verdict("1"), "verify returned score='1'"),
    "a part": (Verdict(1.0, {"form": math.nan}), r"parts\['form'\]=nan, which is no finite number"),
    "no parts": (Verdict(1.0, None), "verify returned parts=None"),
    "an answer": (Verdict(1.0, answer=3), "verify returned answer=3, which is no text"),
}
REPLIES = {
    "None": (None, "step returned None instead of a Reply"),
    "half a character": (Reply("ab\ud800", 1), r"step returned text with half a character \(U\+D800 at 2\)"),
    "bytes": (Reply(b"x", 1), "step returned text=b'x', which is no text"),
    "NaN": (Reply("x", 1, reward=math.nan), "step returned reward=nan"),
    "a part": (Reply("x", 1, parts={"a": "b"}), r"step returned parts\['a'\]='b'"),
}


def run(tmp_path, task, **knobs):
    return train("grpo", tiny_policy(), task, out=tmp_path / "run", **{**KNOBS, **knobs})


def broken(base, **over):
    return type("Broken", (base,), over)()


@pytest.mark.parametrize("name", VERDICTS)
def test_a_verdict_that_is_none_ends_the_run_in_one_sentence(tmp_path, name):
    answer, says = VERDICTS[name]
    with pytest.raises(
        TrainError, match=f"all 16 rollouts failed; the first: the verifier: AnswerError: .*{says}"
    ) as e:
        run(tmp_path, broken(Early, verify=answering(answer)))
    assert "\n" not in str(e.value)


def test_a_run_that_broke_off_has_no_table_and_shows_as_broken_off(tmp_path):
    with pytest.raises(TrainError):
        run(tmp_path, broken(Early, verify=raising(ValueError("x"))))
    assert (tmp_path / "run" / "metrics.jsonl").exists()
    assert not (tmp_path / "run" / "metrics.parquet").exists()
    assert state_of(open_source(tmp_path / "run")) == "crashed"
    run(tmp_path / "other", Early())
    assert state_of(open_source(tmp_path / "other" / "run")) == "done"


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_that_is_none_ends_the_run_in_one_sentence(tmp_path, name):
    answer, says = REPLIES[name]
    with pytest.raises(TrainError, match=f"rollouts failed; the first: the environment: AnswerError: {says}"):
        run(tmp_path, broken(Talk, step=answering(answer)))


@pytest.mark.parametrize("start", [lambda self, item: None, lambda self, item: {}["state"]])
def test_a_start_that_fails_is_a_failed_rollout(tmp_path, start):
    with pytest.raises(TrainError, match=r"the first: starting the environment: (AnswerError|KeyError)"):
        run(tmp_path, broken(Talk, start=start))


@pytest.mark.parametrize("schedule", ["", "areal"])
def test_a_step_without_an_evaluation_before_it_ends_the_run_too(tmp_path, schedule):
    with pytest.raises(RolltreeError, match=r"ValueError: no such table"):
        run(tmp_path, broken(Early, verify=raising(ValueError("no such table"))), eval_every=0, scheduler=schedule)


def test_numbers_of_numpy_are_numbers(tmp_path):
    task = broken(Early, verify=answering(Verdict(np.float32(0.5), {"a": np.int64(1)})))
    assert run(tmp_path, task, steps=1).last("eval")["eval/reward"] == 0.5


def test_failures_are_counted_said_with_their_place_and_none_runs_on(tmp_path, capfd):
    task = broken(Talk, verify=raising(ValueError("no such table")))
    with pytest.raises(TrainError):
        run(tmp_path, task, quiet=False)
    told = " ".join(capfd.readouterr().err.split())
    assert "16 of 16 rollouts failed; the first: the verifier: ValueError: no such table (test_broken_tasks.py:" in told
    assert "nan%" not in told


def test_some_failures_do_not_end_a_run_and_all_leaves_are_accounted_for(tmp_path):
    class Sometimes(Early):
        async def verify(self, item, state, text):
            return None if text[:1] > "c" else Verdict(float(text[:1] < "O"))

    last = run(tmp_path, Sometimes(), steps=2).last("train")
    assert last["rollout/failed"] > 0
    assert last.get("rollout/running", 0) == 0
    assert last["rollout/submitted"] == last["rollout/trained"] + last.get("rollout/dropped", 0)
    assert last["rollout/dropped/failed"] == last["rollout/failed"]


def test_a_run_that_loses_everything_later_stops_after_three_steps(tmp_path):
    class Breaks(Early):
        calls = 0

        async def verify(self, item, state, text):
            Breaks.calls += 1
            return Verdict(float(text[:1] < "O")) if Breaks.calls <= 32 else None

    with pytest.raises(TrainError, match=r"step 4 had nothing to train on, because all 32 rollouts failed.*resume"):
        run(tmp_path, Breaks(), eval_every=0)


def test_the_last_line_of_a_run_knows_evaluations_that_measured_nothing(tmp_path):
    lines = [{"kind": "eval", "eval/pass@1": 0.5}, {"kind": "eval", "eval/pass@1": None}]
    said = closing(Result(tmp_path, None, lines, "all is done"))
    assert said.startswith("pass@1 50.0% → not measured on held-out items; ended because all is done")


def test_a_crashed_tree_names_the_first_of_several_exceptions():
    from rolltree.generate.runner import open_hand

    engine = TabularEngine(lambda prefix: np.full(4, 0.25), Letters("abc\x00", eos_id=3))
    hand = open_hand(engine, Early())
    tree = hand.plant(next(Early().items("train")), prompt="a", id="t")
    paused = tree.extend(tree.root, np.zeros(1, np.int32), role="policy")
    tree.pause(paused, "cancelled")
    fail_tree(hand.on(tree), ExceptionGroup("several", [ValueError("the first"), KeyError("other")]))
    (told,) = [event for event in tree.events if event.kind == "fail" and event.node is None]
    assert told.why == "growing this tree crashed: ValueError: the first"
    assert paused.status == "failed"
