"""Environments of verifiers: their own coroutine plays, our policy answers, and forks play it again."""

from __future__ import annotations

import asyncio
import re

import pytest

from rolltree.control.ledger import Limits
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow, open_hand
from rolltree.generate.strategy import check_needs
from rolltree.task.items import TaskError
from rolltree.task.registry import load_task
from rolltree.testing import task as contract
from tests.task.foreign.worlds import scripted

vf = pytest.importorskip("verifiers.v1", reason="verifiers is not installed: pip install 'rolltree[verifiers]'")

PACKAGE = """
import random
import verifiers.v1 as vf


class Data(vf.TaskData):
    number: int


class Guess(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.metric
    async def guesses(self, trace) -> float:
        return float(trace.num_turns)

    @vf.stop
    async def gave_up(self, trace: vf.Trace) -> bool:
        return trace.last_reply == "stop"
    TASK


class GuessConfig(vf.EnvConfig):
    player: vf.AgentConfig = vf.AgentConfig(max_turns=LIMIT)
    MORE


class Config(vf.TasksetConfig):
    opens: bool = False


class Guesses(vf.Taskset[Guess, Config]):
    def load(self):
        for n in range(40):
            yield Guess(Data(prompt=None if self.config.opens else f"Guess {n}s number", number=n), self.config.task)


class GuessEnv(vf.Env[GuessConfig]):
    async def run(self, task, agents):
        found = False
        async with agents.player.interaction(task) as talk:
            said = await (talk.turn() if task.data.prompt else talk.turn(f"what is {task.data.number}s number"))
            while not said.terminated:
                EACH
                guess = int(said.last_reply)
                if guess == task.data.number:
                    found = True
                    break
                said = await talk.turn("higher" if guess < task.data.number else "lower")
        talk.trace.record_reward("found", float(found))

    async def finalize(self, task, episode):
        (trace,) = episode.traces
        trace.record_metric("stopped", float(trace.stop_condition == "rollout_ended"))
    ENV


__all__ = ["Guesses", "GuessEnv"]
"""


def package(tmp_path, monkeypatch, name, **parts):
    text = PACKAGE.replace("LIMIT", str(parts.pop("limit", None)))
    for mark in ("TASK", "MORE", "EACH", "ENV"):
        text = re.sub(rf" *{mark}\n", parts.get(mark, ""), text, count=1)
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return f"verifiers:{name}"


def some(task):
    return next(task.items("train"))


async def play(name, *turns):
    task = load_task(name)
    return await contract.perform(task, some(task), turns)


def test_an_environment_is_a_sound_task_judged_by_its_own_rewards(tmp_path, monkeypatch):
    task = load_task(package(tmp_path, monkeypatch, "rolltree_guess"))
    assert (task.snapshots, task.stop, task.max_turns) == ("replay", ("\n",), 32)
    contract.check_task(task)
    contract.check_items_repeat(task)
    contract.check_splits_disjoint(task, 40)
    item = some(task)
    number = item.meta["number"]
    asyncio.run(contract.check_functional(task, item, [f"{number + 3}\n", f"{number - 3}\n", f"{number}\n"]))
    replies, state, verdict = asyncio.run(
        contract.perform(task, item, [f"{number - 1}\n", f"{number + 1}\n", f"{number}\n"])
    )
    assert [r.text for r in replies] == ["higher\n", "lower\n", ""]
    assert [r.done for r in replies] == [False, False, True]
    assert state.done
    assert (verdict.score, dict(verdict.parts)) == (1.0, {"found": 1.0, "guesses": 3.0, "stopped": 0.0})
    assert verdict.answer == str(number)


def test_an_environment_that_speaks_first_writes_the_end_of_the_prompt(tmp_path, monkeypatch):
    task = load_task(package(tmp_path, monkeypatch, "rolltree_opens"), opens=True, before="<", after=">")
    item = some(task)
    assert item.prompt == f"what is {item.meta['number']}s number>"
    replies, _, verdict = asyncio.run(contract.perform(task, item, ["99\n", f"{item.meta['number']}\n"]))
    assert replies[0].text == "<lower>"
    assert verdict.score == 1


def test_last_words_are_heard_and_an_unfinished_episode_is_ended_by_the_environment(tmp_path, monkeypatch):
    task = load_task(package(tmp_path, monkeypatch, "rolltree_last"))
    item = some(task)
    number = item.meta["number"]

    async def main(*turns, last):
        state, _ = task.start(item)
        text = ""
        for turn in turns:
            reply = await task.step(item, state, turn)
            state, text = reply.state, text + turn + reply.text
        return await task.verify(item, state, text + last)

    right = asyncio.run(main("99\n", last=str(number)))
    assert (right.score, right.parts["guesses"], right.parts["stopped"]) == (1, 2, 0)
    cut = asyncio.run(main("99\n", last=""))
    assert (cut.score, cut.parts["guesses"], cut.parts["stopped"]) == (0, 1, 1)
    silent = asyncio.run(main(last=""))
    assert (silent.score, silent.parts["guesses"], silent.answer) == (0, 0, None)


def test_the_limits_and_stops_of_the_environment_hold(tmp_path, monkeypatch):
    task = load_task(package(tmp_path, monkeypatch, "rolltree_limits", limit=2))
    item = some(task)
    replies, _, verdict = asyncio.run(contract.perform(task, item, ["98\n", "99\n"]))
    assert [r.done for r in replies] == [False, True]
    assert (verdict.score, verdict.parts["guesses"]) == (0, 2)


def test_a_tree_forks_in_mid_conversation(tmp_path, monkeypatch):
    task = load_task(package(tmp_path, monkeypatch, "rolltree_fork"))
    item = some(task)
    number = item.meta["number"]

    async def main():
        hand = open_hand(
            scripted(lambda lines: str(number) if lines[-1] in ("higher", "lower") else "99"), task, seed=0
        )
        on = hand.on(hand.plant(item))
        (asked,) = await on.extend(on.tree.root)
        answer = await on.act(asked)
        for leaf in await on.extend(answer, n=3):
            assert await on.act(leaf) is not None
        verdicts = await asyncio.gather(*(on.verify(leaf) for leaf in on.tree.leaves()))
        return [(verdict.score, verdict.parts["guesses"]) for verdict in verdicts]

    assert asyncio.run(main()) == [(1, 2)] * 3


def test_what_the_environment_raises_fails_the_leaf(tmp_path, monkeypatch):
    task = load_task(package(tmp_path, monkeypatch, "rolltree_crash"))
    forest = asyncio.run(
        grow(Independent(2), scripted(lambda _: "many"), task, [some(task)], per_prompt=Limits(decoded=64))
    )
    leaves = [leaf for _, leaf in forest.leaves()]
    assert {leaf.status for leaf in leaves} == {"failed"}
    assert all("reward" not in leaf.scores for leaf in leaves)


def test_strategies_that_need_snapshots_are_refused(tmp_path, monkeypatch):
    task = load_task(package(tmp_path, monkeypatch, "rolltree_snap"))
    with pytest.raises(Exception, match="snapshot"):
        check_needs(frozenset({"snapshot"}), "Vines", scripted(lambda _: None), task)


REFUSED = {
    "agents": ({"MORE": "    other: vf.AgentConfig = vf.AgentConfig()\n"}, "played by 2 agents .player, other."),
    "services": ({"ENV": "    async def start(self):\n        pass\n"}, "starts services"),
    "setup": ({"TASK": "    async def setup(self, trace, runtime):\n        pass\n"}, "prepares or ends a runtime"),
    "intercepts": (
        {"TASK": "    @vf.intercept\n    async def hide(self, request: vf.Request):\n        return None\n"},
        "changes requests or responses",
    ),
    "twice": (
        {"EACH": "                async with agents.player.interaction(task):\n                    pass\n"},
        "second conversation",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_one_conversation_cannot_give_is_refused_by_name(tmp_path, monkeypatch, what):
    parts, says = REFUSED[what]
    name = package(tmp_path, monkeypatch, f"rolltree_no_{what}", **parts)
    with pytest.raises(TaskError, match=says):
        asyncio.run(play(name, "99\n"))
