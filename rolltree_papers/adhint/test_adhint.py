"""Hints as long as a prompt is hard."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rolltree.control.history import History
from rolltree.control.order import ControlError, Delivery
from rolltree.control.plan import Step
from rolltree.task.protocol import Item
from rolltree_papers.adhint import ADHint

ANSWER = "abcdefghij"


class Few:
    taken = 0

    def take(self, count: int) -> list[Item]:
        return [Item(f"p{i}", "?", None) for i in range(count)]

    def at(self, places: Any) -> list[Item]:
        return []


def rounds(control: ADHint, rates: list[float]) -> Any:
    step = Step(1, len(rates), 8, np.random.default_rng(0), Few(), History(), lambda _: ANSWER)
    plan = control.plan(step, control.start())
    first = next(plan)
    outcomes = [tuple(float(i < round(4 * r)) for i in range(4)) for r in rates]
    return first, plan.send([Delivery(o, r) for o, r in zip(first, outcomes, strict=True)])


def test_the_harder_a_prompt_the_more_of_the_answer_is_shown() -> None:
    first, second = rounds(ADHint(0.2, 0.8, 0.0), [0.0, 0.5, 1.0])
    assert [o.width for o in first] == [4, 4, 4]
    assert all(o.brief is None for o in first)
    assert [o.brief.text if o.brief else "" for o in second] == ["abcdefgh", "abcde", ""]
    assert [o.arm for o in second] == ["hint", "hint", "plain"]
    assert all(o.brief["hint"].joins and o.brief.trains for o in second[:2])


def test_all_of_the_answer_is_never_shown() -> None:
    _, second = rounds(ADHint(1.0, 1.0, 0.0), [0.0])
    assert second[0].brief.text == ANSWER[:-1]


def test_shares_out_of_order_are_refused() -> None:
    with pytest.raises(ControlError, match=r"least=0.5, most=0.2"):
        ADHint(0.5, 0.2)
