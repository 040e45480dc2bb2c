"""Spans between tags, in characters and in tokens; the grid whose turns and plans are spoken."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice, pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.errors import RolltreeError
from rolltree.task.grammar import Grammar, Planned, Spoken, Tag
from rolltree.task.items import TaskError
from rolltree.task.nano import NanoTask, play
from rolltree.task.nano.spoken import TURN, Blueprint
from rolltree.task.registry import load_task
from rolltree.testing.task import check_task
from studies.lab.nano.corpus import document
from studies.lab.nano.tokenizer import CharacterCodec, build_tokenizer

XML = Grammar(tuple(Tag(n, f"<{n}>", f"</{n}>", level) for n, level in (("switch", 2), ("subgoal", 1), ("action", 0))))


class Merged:
    """A tokenizer that knows whole pieces, some of which lie across a tag's end."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[i] for i in ids)


def test_spans_are_found_with_their_tags_and_levels() -> None:
    text = "hm <switch>KEEP</switch><subgoal>door</subgoal> so <action>go</action>"
    found = XML.find(text)
    assert list(found) == ["switch", "subgoal", "action"]
    assert text[slice(*found["action"])] == "<action>go</action>"
    assert XML.inside(text, "subgoal") == "door"
    assert [XML[name].level for name in found] == [2, 1, 0]
    assert XML.find("<action>go<switch>S</switch>") == {"switch": (10, 28)}, "what is not closed is no span"
    assert XML.find("<action>a</action><action>b</action>") == {"action": (0, 18)}, "the first one counts"
    with pytest.raises(RolltreeError, match="no span 'plan'"):
        XML["plan"]


def test_a_token_across_a_boundary_belongs_to_the_span_it_ends_in() -> None:
    codec: Any = Merged("x", "<a", "ction>", "go.<", "/action>", "<switch>S</switch><", "action>up</action> ")
    assert XML.tokens(codec, np.array([0, 1, 2, 3, 4])) == {"action": (1, 5)}
    spans = XML.tokens(codec, np.array([5, 6]))
    assert spans == {"switch": (0, 1), "action": (1, 2)}, "no token is of two spans"


class Halves:
    """Two tokens make one character; neither shows anything alone."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join({(1, 2): "é"}.get((a, b), "") for a, b in pairwise(ids)) + "".join(
            "(x)"[i - 10] for i in ids if i >= 10
        )


def test_tokens_that_are_parts_of_a_character_are_counted() -> None:
    codec: Any = Halves()
    assert codec.decode([1, 2]) == "é"
    assert TURN.tokens(codec, np.array([1, 2, 10, 11, 12])) == {"action": (2, 5)}


@given(st.text("()[]{}SKab^ ", max_size=30))
def test_spans_of_characters_and_of_one_character_tokens_are_the_same(text: str) -> None:
    codec: Any = Merged(*sorted(set(text)))
    ids = np.array([codec.pieces.index(c) for c in text], np.int64)
    assert TURN.tokens(codec, ids) == TURN.find(text)
    for name, (start, stop) in TURN.find(text).items():
        assert text[start] == TURN[name].opens
        assert text[stop - 1] == TURN[name].closes


def items(task: Any, n: int) -> list[Any]:
    return list(islice(task.items("train"), n))


@pytest.mark.parametrize("name", ["spoken:grid", "planned:grid"])
def test_the_expert_solves_what_it_speaks_of_and_is_a_corpus(name: str) -> None:
    task: Any = load_task(name, level=2)
    assert isinstance(task, NanoTask)
    codec = CharacterCodec(build_tokenizer(512))
    for item in items(task, 20):
        played = asyncio.run(play(task, item, Random(1)))
        verdict = asyncio.run(task.verify(item, played.state, played.text))
        assert verdict.score == 1.0
        written = document(played, codec)
        assert written.own.any()
        own = sum(len(text) for who, text in played.turns if who == "policy")
        assert own <= task.max_tokens
        assert codec.decode(written.tokens).startswith(item.prompt)


@pytest.mark.parametrize("name", ["spoken:grid", "planned:grid"])
def test_they_keep_the_task_contract(name: str) -> None:
    check_task(load_task(name))


def test_spoken_turns_say_when_they_switch() -> None:
    task: Any = load_task("spoken:grid", level=2)
    assert isinstance(task, Spoken)
    (item,) = items(task, 1)
    played = asyncio.run(play(task, item, Random(0)))
    turns = [text for who, text in played.turns if who == "policy"]
    goals = [TURN.inside(turn, "subgoal") for turn in turns]
    switches = [TURN.inside(turn, "switch") for turn in turns]
    assert goals[0] == "a"
    assert goals[-1] == "*"
    assert [s == "S" for s in switches] == [i == 0 or g != goals[i - 1] for i, g in enumerate(goals)]
    state, _ = task.start(item)
    torn = asyncio.run(task.step(item, (state[0], "a"), "[K]{*}(^)"))
    assert torn.failed, "KEEP must copy the subgoal"
    assert asyncio.run(task.step(item, state, "^")).failed, "a move in no span is no move"


def test_a_plan_is_in_force_subgoal_by_subgoal() -> None:
    task: Any = load_task("planned:grid", level=2, patience=2)
    assert isinstance(task, Planned)
    (item,) = items(task, 1)
    state, _ = task.start(item)
    reply = asyncio.run(task.step(item, state, "aA*;"))
    assert (reply.text, reply.state.plan) == (">a", ("a", "A", "*"))
    ended = asyncio.run(task.step(item, reply.state, "(!^)"))
    assert ended.state.plan == ("A", "*"), "the policy may end a subgoal"
    assert ended.text.endswith(">A")
    waited = asyncio.run(task.step(item, Blueprint(state.walker, ("a", "*"), 1), "(^)"))
    assert waited.state.plan == ("*",), "its budget of moves is used up"
    assert asyncio.run(task.step(item, state, "!;")).failed, "a plan without subgoals"
    with pytest.raises(TaskError, match="write planned:grid"):
        load_task("planned:sql")
