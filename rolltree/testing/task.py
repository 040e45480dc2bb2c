"""Contract checks of a task: run them on your own before a run depends on it.

Each check takes the task, plays what it needs and raises AssertionError with one sentence naming the item at fault.
`scripts` are rollouts as lists of policy turns, for instance a reference solution and some failures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from itertools import islice
from typing import Any

from rolltree.task.items import check_item
from rolltree.task.protocol import Item, Reply, Task, Verdict

Script = Sequence[str]


def check_task(task: Task, count: int = 64) -> None:
    """Fits the protocol, has sane limits, and gives items that a verifier can judge, under stable, telling ids."""
    assert isinstance(task, Task), f"{task!r} does not fit the Task protocol"
    assert task.max_tokens > 0, f"{task.name}: max_tokens is {task.max_tokens}"
    assert task.max_turns >= 0, f"{task.name}: max_turns is {task.max_turns}"
    assert not task.max_turns or task.stop, f"{task.name}: an interactive task needs stop strings to take its turn at"
    prompts: dict[str, str] = {}
    for item in islice(task.items("train"), count):
        check_item(item)
        known = prompts.setdefault(item.id, item.prompt)
        assert known == item.prompt, f"{task.name}: two different prompts share the id {item.id}"


def check_items_repeat(task: Task, count: int = 64) -> None:
    """The same split and seed give the same items; another seed gives others."""
    for split in ("train", "test"):
        first = list(islice(task.items(split, seed=3), count))
        again = list(islice(task.items(split, seed=3), count))
        assert first == again, f"{task.name}: {split} items differ between two streams of the same seed"
        other = list(islice(task.items(split, seed=4), count))
        assert [item.id for item in first] != [item.id for item in other], (
            f"{task.name}: the seed changes no {split} item"
        )


def check_splits_disjoint(task: Task, count: int = 512) -> None:
    """No prompt and no id of the test split is ever met in training, whatever the seed."""
    test = [item for seed in range(2) for item in islice(task.items("test", seed), count)]
    ids, prompts = {item.id for item in test}, {item.prompt for item in test}
    for seed in range(2):
        for item in islice(task.items("train", seed), count):
            assert item.id not in ids, f"{task.name}: {item.id} is in both splits"
            assert item.prompt not in prompts, f"{task.name}: the prompt {item.prompt!r} is in both splits"


async def perform(task: Task, item: Item, script: Script) -> tuple[list[Reply], Any, Verdict]:
    """Play a script: replies, last state and verdict. Turns after the end of the episode are not played."""
    state, _ = task.start(item)
    replies: list[Reply] = []
    text = ""
    for turn in script:
        text += turn
        if task.max_turns:
            reply = await task.step(item, state, turn)
            replies.append(reply)
            state = reply.state
            text += reply.text
            if reply.done:
                break
    return replies, state, await task.verify(item, state, text)


async def check_reference(task: Task, item: Item, script: Script) -> None:
    """A reference solution scores 1, gives an answer, ends the episode, and stays inside the task's limits."""
    replies, _, verdict = await perform(task, item, script)
    assert verdict.score == 1, f"{item.id}: the reference solution scores {verdict.score} ({verdict.why})"
    assert verdict.answer is not None, f"{item.id}: the reference solution's verdict names no answer"
    assert len(replies) <= task.max_turns, f"{item.id}: the reference takes {len(replies)} of {task.max_turns} turns"
    assert not replies or replies[-1].done, f"{item.id}: the reference solution does not end the episode"
    for turn in script if task.max_turns else ():
        assert any(stop in turn for stop in task.stop), f"{item.id}: the turn {turn!r} holds no stop string"


async def check_functional(task: Task, item: Item, script: Script) -> None:
    """Stepping changes no state in place and depends on nothing but item, state and text."""
    state, key = task.start(item)
    assert task.start(item) == (state, key), f"{item.id}: two starts differ"
    trail: list[tuple[Any, str, Reply]] = []
    for turn in script if task.max_turns else ():
        before = deepcopy(state)
        reply = await task.step(item, state, turn)
        assert state == before, f"{item.id}: step changed the state it was given at {turn!r}"
        trail.append((state, turn, reply))
        state = reply.state
        if reply.done:
            break
    for old, turn, reply in reversed(trail):
        assert await task.step(item, old, turn) == reply, f"{item.id}: {turn!r} answered differently the second time"
    text = "".join(turn + reply.text for _, turn, reply in trail) or "".join(script)
    verdict = await task.verify(item, state, text)
    assert await task.verify(item, state, text) == verdict, f"{item.id}: two verdicts on one rollout differ"


async def check_state_keys(task: Task, item: Item, scripts: Sequence[Script]) -> Mapping[str, int]:
    """Equal keys mean equal states, hence equal replies to every turn of the scripts; returns key → visits."""
    if not task.max_turns:
        assert task.start(item) == (None, None), f"{item.id}: a task without turns has a first state"
        return {}
    states: dict[str, Any] = {}
    visits: dict[str, int] = {}
    turns = sorted({turn for script in scripts for turn in script})
    for script in scripts:
        state, key = task.start(item)
        replies, _, _ = await perform(task, item, script)
        for at, name in [(state, key), *((reply.state, reply.state_key) for reply in replies if not reply.done)]:
            if name is None:
                continue
            visits[name] = visits.get(name, 0) + 1
            known = states.setdefault(name, at)
            if known != at:
                for turn in turns:
                    one, two = await task.step(item, known, turn), await task.step(item, at, turn)
                    same = (one.text, one.done, one.reward, one.state_key) == (
                        two.text,
                        two.done,
                        two.reward,
                        two.state_key,
                    )
                    assert same, f"{item.id}: states of the key {name!r} answer {turn!r} differently"
    return visits


async def check_verifier_is_total(task: Task, item: Item, texts: Sequence[str]) -> None:
    """Whatever a policy writes gets a finite verdict below 1 or a reply; nothing raises."""
    for text in texts:
        _, _, verdict = await perform(task, item, [text])
        assert 0 <= verdict.score < 1, f"{item.id}: {text[:40]!r} scores {verdict.score}"
