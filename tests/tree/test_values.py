"""Values come back equal, as JSON that other programs accept, and nothing unknown is ever constructed."""

import json
from collections import namedtuple
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings

from rolltree.tree.store.values import StoreError, dumps, loads, register, storable
from tests.tree.forest_strategies import JSON, same


@settings(max_examples=200, deadline=None)
@given(value=JSON)
def test_any_plain_value_comes_back(value: object):
    assert same(loads(dumps(value)), value)


def test_what_json_lacks_comes_back():
    value = {"s": {1, 2}, "f": frozenset({(1, "a")}), "a": np.arange(6, dtype=np.int16).reshape(2, 3), "$x": 1}
    back = loads(dumps(value))
    assert same(back.pop("a"), value.pop("a"))
    assert back == value
    assert dumps({"a", "b", "c"}) == dumps({"c", "b", "a"})
    assert loads(dumps({"n": np.float32(0.1), "i": np.int64(3), "b": np.bool_(True)})) == {
        "n": float(np.float32(0.1)), "i": 3, "b": True,
    }  # fmt: skip


@given(value=JSON)
def test_the_text_is_standard_json(value: object):
    def refuse(word: str) -> None:
        raise AssertionError(word)

    json.loads(dumps(value), parse_constant=refuse)


def test_registered_classes():
    register(Fraction, "fraction", lambda f: [f.numerator, f.denominator], lambda pair: Fraction(*pair))
    assert loads(dumps([Fraction(1, 3)])) == [Fraction(1, 3)]
    with pytest.raises(StoreError, match="storable works on dataclasses; register int"):
        storable(int)


@dataclass
class Plain:
    x: int


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize("value", [Plain(1), Pair(1, 2), object(), np.array(["text"])])
def test_other_classes_are_refused_by_name(value: object):
    with pytest.raises(StoreError, match=rf"{type(value).__name__} cannot be stored: .* bytes or plain JSON values"):
        dumps({"deep": [value]})


@pytest.mark.parametrize("text", ['{"$what":1}', '{"$bytes":"*"}', '{"$array":["O",[1],""]}', '{"$float":"x"}', "{"])
def test_nonsense_is_refused(text: str):
    with pytest.raises(StoreError):
        loads(text)
