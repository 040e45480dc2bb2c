"""Every control against every odd step: a matrix over the registry, so that a new control is in it at once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from rolltree.control.history import History
from rolltree.control.order import Delivery, Order
from rolltree.control.registry import controls
from rolltree.task.protocol import Item
from studies.prompts.world import PromptWorld, grouped, run
from tests.control.test_controls import small

POOLED = ("vade", "dots", "shuffled", "stagent", "drive")
"""These choose among different prompts and never take one twice in a step."""


@dataclass(slots=True)
class Renamed(PromptWorld):
    """Other prompts under other names and levels: what a stream turns into."""

    def _item(self, i: int) -> Item:
        return replace(PromptWorld._item(self, i), id=f"q{i}", level=5 + i % 2)


@dataclass(slots=True)
class Deaf(PromptWorld):
    """Nothing that is asked for gets an outcome: every rollout failed, or the budget held none."""

    def serve(self, order: Order, width: int) -> Delivery:
        return Delivery(order, (), failed=width)


@dataclass(slots=True)
class Short(PromptWorld):
    """A budget smaller than one group: the first rollout of a step is the last."""

    left: int = 0

    def serve(self, order: Order, width: int) -> Delivery:
        whole = PromptWorld.serve(self, order, width)
        n, self.left = min(whole.n, self.left), max(self.left - whole.n, 0)
        cut = {name: getattr(whole, name)[:n] for name in ("rewards", "lengths", "texts")}
        return replace(whole, **cut, decoded=10 * n)

    def pass_time(self, delivered: Any) -> None:
        self.left = 1


def still(logits: Any) -> dict[str, Any]:
    return {"logits": np.asarray(logits, float), "drift": 0.0, "per_hint": 0.0}


def all_solved(name: str) -> None:
    _flat(name, 50.0)


def none_solved(name: str) -> None:
    _flat(name, -50.0)


def _flat(name: str, logit: float) -> None:
    for log in run(small(name), PromptWorld(**still(np.full(30, logit))), 4, prompts=5, width=4):
        assert log.effective == 0
        assert log.groups >= 1
        assert log.rollouts <= 8 * 5 * 4 + 4 * 4, "no control asks without end for what cannot come"


def one_prompt_one_rollout(name: str) -> None:
    for log in run(small(name), PromptWorld(1, seed=1), 3, prompts=1, width=1):
        assert log.groups == 1
        assert log.rollouts >= 1


def duplicates(name: str) -> None:
    """A stream of three prompts must fill steps of five: the same prompt stands in several places."""
    for log in run(small(name), PromptWorld(3, seed=1), 3, prompts=5, width=4):
        groups = grouped(log.delivered)
        assert len({g[0].order.prompt.uid for g in groups.values()}) == 3
        assert len(groups) == (3 if name in POOLED else 5)
        assert len({d.order.prompt.uid for g in groups.values() for d in g if d.order.prompt.place == 0}) <= 1


def a_set_that_changes(name: str) -> None:
    control, history = small(name), History()
    state = control.start()
    run(control, PromptWorld(40, seed=2), 2, prompts=5, width=4, state=state, history=history)
    for log in run(control, Renamed(30, seed=3), 3, prompts=5, width=4, state=state, history=history, first=3):
        assert log.groups == 5
        assert {d.order.prompt.uid[0] for d in log.delivered} == {"q"}, "nothing is asked that is no longer there"


def no_outcomes(name: str) -> None:
    for log in run(small(name), Deaf(20, seed=1), 3, prompts=4, width=4):
        assert log.rollouts == 0
        assert log.groups >= 1


def less_than_one_group(name: str) -> None:
    logs = run(small(name), Short(20, seed=1, left=1), 4, prompts=4, width=4)
    assert all(log.rollouts <= 1 for log in logs)


CASES = (all_solved, none_solved, one_prompt_one_rollout, duplicates, a_set_that_changes, no_outcomes,
         less_than_one_group)  # fmt: skip


@pytest.mark.papers("dots", "drive", "stagent", "vade")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.replace("_", " "))
@pytest.mark.parametrize("name", list(controls()))
def test_edge(name: str, case: Any) -> None:
    case(name)
