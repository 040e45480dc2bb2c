"""Chains of questions with a library that belongs to one rollout."""

from __future__ import annotations

import asyncio
from itertools import islice
from random import Random
from typing import Any

import numpy as np
import pytest

from rolltree.control.order import Written
from rolltree.credit.registry import load_credit
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.forced import Given
from rolltree.generate.runner import grow
from rolltree.task.items import TaskError
from rolltree.task.nano import NanoTask, play
from rolltree.task.nano.chained import ChainDesk
from rolltree.task.protocol import Item, Reply
from rolltree.task.registry import load_task
from rolltree.testing import task as contract
from rolltree.tree.table import table


def made(**knobs: Any) -> tuple[Any, Item]:
    task: Any = load_task("chained:calculator", fail_rate=0.0, **knobs)
    return task, next(task.items("train"))


def say(task: Any, item: Item, *turns: str) -> list[Reply]:
    state, _ = task.start(item)
    out: list[Reply] = []
    for turn in turns:
        out.append(asyncio.run(task.step(item, state, turn)))
        state = out[-1].state
    return out


def test_it_keeps_the_task_contract_and_its_expert_solves_it() -> None:
    task: Any = load_task("chained:calculator", length=3)
    assert isinstance(task, NanoTask)
    contract.check_task(task)
    contract.check_items_repeat(task, 24)
    contract.check_splits_disjoint(task, 64)
    for item in islice(task.items("train"), 20):
        assert len({*item.meta["starts"]}) == 3
        played = asyncio.run(play(task, item, Random(1)))
        verdict = asyncio.run(task.verify(item, played.state, played.text))
        assert verdict.score == 1.0
        assert verdict.parts["uses"] == 2.0
        assert sum(len(text) for who, text in played.turns if who == "policy") <= task.max_tokens
        script = [text for who, text in asyncio.run(play(task, item, Random(2), 0.5)).turns if who == "policy"]
        asyncio.run(contract.check_functional(task, item, script))


def test_what_one_question_saved_is_called_in_the_next_and_counts_there_only() -> None:
    task, item = made()
    steps, (first, second), (one, two) = item.meta["steps"], item.meta["starts"], item.answer
    saved, same, ended, called, over = say(
        task, item, f"f:{steps} {first}\n", f"f{first}\n", f"={one}\n", f"f{second}\n", f"={two}\n"
    )
    assert saved.text == same.text == f"{one}\n"
    assert not same.state.used, "a routine of the same question is not a library's"
    assert ended.parts == {"task_reward": 1.0, "used_skill": 0.0}
    assert ended.text.endswith(" f\n"), "the next question shows what there is"
    assert called.text == f"{two}\n"
    assert over.done
    assert over.parts == {"task_reward": 1.0, "used_skill": 1.0}
    verdict = asyncio.run(task.verify(item, over.state, ""))
    assert (verdict.score, verdict.parts["uses"], verdict.parts["saved"]) == (1.0, 1.0, 1.0)


def test_what_is_written_anew_is_new_and_what_fails_is_not_saved() -> None:
    task, item = made()
    steps, (first, second), (one, two) = item.meta["steps"], item.meta["starts"], item.answer
    anew = say(task, item, f"f:{steps} {first}\n", f"={one}\n", f"f:{steps} {second}\n", f"f{second}\n", f"={two}\n")
    assert anew[-1].parts["used_skill"] == 0.0
    never = say(task, item, f"f{first}\n", f"={one}\n", f"={two}\n")
    assert never[0].failed
    assert [r.parts.get("task_reward") for r in never[1:]] == [-1.0, -1.0], "answered without a call that worked"
    down: Any = load_task("chained:calculator", fail_rate=0.9)
    failing = next(i for i in down.items("train") if down.inner.fails(i, 0))
    (broken,) = say(down, failing, f"f:{failing.meta['steps']} 1\n")
    assert broken.failed
    assert not broken.state.library


def test_no_two_rollouts_share_a_library() -> None:
    task, item = made()
    (saved,) = say(task, item, f"f:{item.meta['steps']} {item.meta['starts'][0]}\n")
    assert saved.state.library
    assert not ChainDesk().library
    assert task.start(item)[0].library == {}
    kept = dict(saved.state.library)
    asyncio.run(task.step(item, saved.state, "f:+1 1\n"))
    assert saved.state.library == kept, "a fork of the rollout writes in a library of its own"


def test_the_credit_finds_where_each_question_ends() -> None:
    """One chain saves and uses, one does without, one is cut off in its first question."""
    task, item = made()
    steps, (first, second), (one, two) = item.meta["steps"], item.meta["starts"], item.answer
    saves = (f"f:{steps} {first}\n", f"={one}\n", f"f{second}\n", f"={two}\n")
    writes = (f"f:{steps} {first}\n", f"={one}\n", f"g:{steps} {second}\n", f"={two}\n")
    stops = (f"f:{steps} {first}\n",)
    engine = TabularEngine(lambda _: [1 / 96] * 96, Letters("\n" + "".join(map(chr, range(32, 127))), eos_id=-1))
    chains = Given(tuple(Written(turns) for turns in (saves, writes, stops)))
    (tree,) = asyncio.run(grow(chains, engine, task, [item]))
    rows = table([tree])
    value = load_credit("skill_chain")(rows).node
    assert value is not None
    said = {n.id: v for n, v in zip(rows.nodes, value.tolist(), strict=True)}
    by_chain = [[said[n.id] for n in tree.path(leaf) if n.role == "policy"] for leaf in tree.leaves()]
    # First question: worth 2, 1 and 0 (called, but never answered); second: 2 and 1.
    np.testing.assert_allclose(by_chain[0], [1.0, 1.0, 0.5, 0.5])
    np.testing.assert_allclose(by_chain[1], [0.0, 0.0, -0.5, -0.5])
    np.testing.assert_allclose(by_chain[2], [-1.0])


def test_only_the_calculator_is_chained() -> None:
    with pytest.raises(TaskError, match="write chained:calculator"):
        load_task("chained:sql")
    with pytest.raises(TaskError, match="length=0"):
        load_task("chained:calculator", length=0)
