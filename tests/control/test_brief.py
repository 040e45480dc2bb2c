"""Briefs: where slots stand in tokens, what taking one away leaves, and what makes no sense."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rolltree.control.brief import Brief, BriefError, Slot, brief
from rolltree.testing.tiny import CODEC


def made() -> Brief:
    return Brief((Slot("plan", "de"), Slot("notes", "wxy", ("t/1", "t/4"), before=True), Slot("lead", "a", joins=True)))


def test_spans_say_which_tokens_came_from_which_slot() -> None:
    laid = made().laid(CODEC.encode, CODEC.encode("qq"))
    assert CODEC.decode(laid.ids) == made().around("qq") == "wxyqqdea"
    assert {name: CODEC.decode(laid.ids[a:b]) for name, (a, b) in laid.spans.items()} == {
        "notes": "wxy", "plan": "de", "lead": "a",
    }  # fmt: skip
    assert made().noted(laid)[1] == {"slot": "notes", "span": [0, 3], "sources": ["t/1", "t/4"]}


def test_a_slot_that_is_taken_away_leaves_the_others_as_they_were() -> None:
    rest = made().without("plan")
    assert rest.around("qq") == "wxyqqa"
    assert (rest.lead, rest["notes"].sources) == ("a", ("t/1", "t/4"))
    assert list(made().without("plan", "notes", "lead").laid(CODEC.encode, [1, 2]).ids) == [1, 2]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Slot("a", "x", hidden=True, trainable=True), "'a': hidden text can neither"),
        (lambda: Slot("a", "x", before=True, joins=True), "'a': text before the prompt"),
        (lambda: Brief((Slot("a", "x"), Slot("a", "y"))), "share a name"),
        (lambda: Brief((Slot("a", "x", joins=True), Slot("b", "y"))), "behind the beginning"),
        (lambda: brief("x").without("hint"), "no slot 'hint'; it has ask"),
    ],
)
def test_what_makes_no_sense_is_said(make: Callable[[], object], said: str) -> None:
    with pytest.raises(BriefError, match=said):
        make()
