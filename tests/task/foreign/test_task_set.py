"""Task sets of verifiers: a real package is loaded by verifiers itself and scored by its own rewards."""

from __future__ import annotations

import asyncio
import sys

import pytest

from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.task.items import TaskError
from rolltree.task.registry import load_task
from rolltree.testing import task as contract
from tests.task.foreign.worlds import scripted

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed: pip install 'rolltree[verifiers]'")

PACKAGE = """
import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: str


class Sum(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward(weight=2.0)
    async def right(self, trace) -> float:
        return float(trace.last_reply == self.data.answer)

    @vf.reward
    async def brief(self, trace) -> dict:
        return {"brief": 0.5 if len(trace.last_reply) < 4 else 0.0}

    @vf.metric
    async def words(self, trace) -> float:
        return float(len(trace.last_reply.split()))
    HERE


class Config(vf.TasksetConfig):
    top: int = 8


class Sums(vf.Taskset[Sum, Config]):
    def load(self):
        for a in range(self.config.top):
            for b in range(8):
                yield Sum(Data(prompt=f"{a}+{b}=", system_prompt="Add." if a % 2 else None, answer=str(a + b)))


__all__ = ["Sums"]
"""
FAULTS = {
    "runtime": ("@vf.reward\n    async def boxed(self, trace, runtime) -> float:\n        return 0.0",
                "scores in a runtime"),
    "setup": ("async def setup(self, trace, runtime):\n        pass", "prepares or ends a runtime"),
    "container": ("NEEDS_CONTAINER = True", "needs a container"),
}  # fmt: skip


def package(tmp_path, monkeypatch, name, more=""):
    (tmp_path / f"{name}.py").write_text(PACKAGE.replace("HERE", more))
    monkeypatch.syspath_prepend(tmp_path)
    return f"verifiers:{name}"


def test_a_task_set_is_a_sound_task_with_its_own_rewards(tmp_path, monkeypatch):
    task = load_task(package(tmp_path, monkeypatch, "rolltree_sums"))
    contract.check_task(task)
    contract.check_items_repeat(task)
    contract.check_splits_disjoint(task, 64)
    item = next(i for i in task.items("train") if i.prompt.startswith("Add."))
    verdict = asyncio.run(task.verify(item, None, f" {item.meta['answer']}\n"))
    assert (verdict.score, dict(verdict.parts)) == (2.5, {"right": 2.0, "brief": 0.5, "words": 1.0})
    assert asyncio.run(task.verify(item, None, "I do not know")).score == 0
    assert asyncio.run(task.verify(item, None, "")).answer is None


def test_configuration_reaches_the_task_set(tmp_path, monkeypatch):
    name = package(tmp_path, monkeypatch, "rolltree_knobs")
    assert len(load_task(f"{name}?top=2")._tasks) == 16
    with pytest.raises(TaskError, match=r"refuses its configuration.*top"):
        load_task(name, top="many")


def test_a_reward_that_crashes_is_a_failed_leaf(tmp_path, monkeypatch):
    more = "@vf.reward\n    async def broken(self, trace) -> float:\n        return 1 / 0"
    task = load_task(package(tmp_path, monkeypatch, "rolltree_broken", more))
    forest = asyncio.run(grow(Independent(2), scripted(lambda _: None), task, [next(task.items("train"))]))
    assert {leaf.status for _, leaf in forest.leaves()} == {"failed"}
    assert all("reward" not in leaf.scores for _, leaf in forest.leaves())


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_single_turn_cannot_give_is_refused_by_name(tmp_path, monkeypatch, fault):
    more, says = FAULTS[fault]
    with pytest.raises(TaskError, match=says):
        load_task(package(tmp_path, monkeypatch, f"rolltree_{fault}", more))


def test_unknown_names_and_missing_settings_are_refused():
    with pytest.raises(TaskError, match="verifiers finds no task set 'no-such-set'"):
        load_task("verifiers:no-such-set")
    with pytest.raises(TaskError, match="refuses its configuration"):
        load_task("verifiers:openenv")


def test_a_missing_library_is_one_sentence_naming_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    with pytest.raises(ImportError, match=r"pip install 'rolltree\[verifiers\]'"):
        load_task("verifiers:anything")
