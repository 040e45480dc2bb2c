"""Streams of items that cannot go on say so; files of items are read with bounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.engine.protocol import EngineError
from rolltree.engine.texts import CHARACTERS, tokens_of
from rolltree.errors import RolltreeError
from rolltree.generate.answers import check_item
from rolltree.rollout.config import RolloutError
from rolltree.rollout.cursor import Cursor
from rolltree.task.data.source import read_data
from rolltree.task.foreign.starts import read_rows
from rolltree.task.items import LONGEST_LINE, TaskError, lines_of, split_of, stream
from rolltree.task.protocol import Item
from rolltree.task.registry import load_task
from rolltree.testing.tiny import CODEC, tiny_engine
from rolltree.tree.store.values import StoreError, loads, read_json

DEEP = "[" * 200_000
LONG = "1" * 5000


def few(names: list[str], split: str) -> Iterator[Item]:
    return stream("few", 0, split, 0, lambda rng: (name := rng.choice(names), Item(name, name, 1)))


@settings(max_examples=25)
@given(st.lists(st.text(max_size=3), min_size=1, max_size=12, unique=True))
def test_a_few_items_give_their_split_or_a_sentence_and_never_a_wait(names: list[str]) -> None:
    for split in ("train", "test"):
        here = {name for name in names if split_of(f"few/{name}") == split}
        if here:
            assert {item.id for item in islice(few(names, split), 200 * len(names))} == here
        else:
            with pytest.raises(TaskError, match=rf"few \(level 0\) has no {split} items: all {len(names)} different"):
                next(few(names, split))


def test_draws_that_are_never_usable_are_a_sentence() -> None:
    with pytest.raises(TaskError, match="none of 10001 draws was usable"):
        next(stream("none", 3, "test", 0, lambda rng: None))


def test_a_rare_split_among_many_is_waited_for() -> None:
    def draw(rng: Random) -> tuple[str, Item]:
        number = rng.randrange(5000)
        while split_of(f"rare/{number}") == "test" and number != 40:
            number = rng.randrange(5000)
        return str(number), Item(str(number), "x", 1)

    rare = next(n for n in range(40, 5000) if split_of(f"rare/{n}") == "test")
    other = str(rare), Item("r", "x", 1)
    found = next(stream("rare", 0, "test", 0, lambda rng: draw(rng) if rng.random() < 0.999 else other))
    assert found.id in ("r", "40")


class Ending:
    """A task whose items end, which they must not."""

    name, level = "ending", 0

    def items(self, split: str, seed: int = 0) -> Iterator[Item]:
        return iter([Item(str(i), "x", 1) for i in range(5)])


def test_a_task_that_runs_out_of_items_is_named() -> None:
    cursor = Cursor(Ending(), 0)  # pyright: ignore[reportArgumentType]
    assert len(cursor.take(3)) == 3
    with pytest.raises(RolloutError, match="task ending ran out of training items after 5"):
        cursor.take(3)
    assert [item.id for item in Cursor(Ending(), 0).at([1, 4])] == ["1", "4"]  # pyright: ignore[reportArgumentType]
    with pytest.raises(RolloutError, match="after 5"):
        Cursor(Ending(), 0).at([1, 5])  # pyright: ignore[reportArgumentType]


def test_a_line_too_long_for_any_context_is_refused_before_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    with file.open("wb") as sink:
        sink.write(b'{"prompt": "1+1=", "answer": "2"}\n')
        sink.truncate(LONGEST_LINE * 3)
    for read in (read_data, read_rows):
        with pytest.raises(TaskError, match=r"line 2 is longer than"):
            read(str(file))


@pytest.mark.parametrize(
    ("text", "told"), [(DEEP, "nested too deeply"), (LONG, "digits"), ("{", "at column"), ("nan", "at column")],
    ids=["deep", "long", "cut", "word"],
)  # fmt: skip
def test_json_that_python_cannot_read_is_one_kind_of_error(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told if told != "at column" else "Expecting"):
        read_json(text)
    file = tmp_path / "items.jsonl"
    file.write_text('{"prompt": "x", "answer": 1}\n' + f'{{"prompt": {text}, "answer": 1}}\n')
    for read in (read_data, read_rows):
        with pytest.raises(TaskError, match=rf"line 2 is not JSON: .*{told}"):
            read(str(file))
    with pytest.raises(StoreError, match="not JSON"):
        loads(text)
    with pytest.raises(RolltreeError):
        load_task(f"countdown?use_all={text}&nothing=1")


def test_lines_that_are_no_text_are_named_by_number_and_a_last_line_needs_no_end(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes("a\nü\n\nz".encode())
    assert list(lines_of(file)) == [(1, "a"), (2, "ü"), (3, ""), (4, "z")]
    file.write_bytes(b"a\n\xff\n")
    with pytest.raises(TaskError, match="at byte 0 of line 2"):
        list(lines_of(file))


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenised(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = tiny_engine()
    most = CHARACTERS * engine.capabilities.max_context
    assert tokens_of(engine, "a" * 9, "it").tolist() == CODEC.encode("a" * 9)
    encoded = list[int]()
    whole = type(CODEC).encode
    monkeypatch.setattr(type(CODEC), "encode", lambda self, text: encoded.append(len(text)) or whole(self, text))
    with pytest.raises(EngineError, match=r"the prompt of item 'big' has .* characters and cannot fit"):
        check_item(Item("big", "a" * (most + 1), 1), engine)
    assert not encoded
    assert len(tokens_of(engine, "a" * most, "it")) == most
    assert np.array_equal(encoded, [most])
