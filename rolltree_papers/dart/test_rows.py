"""What `dart` promises beside what all of its kind do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rolltree.control.history import History
from rolltree.control.order import ControlError, Delivery
from rolltree.control.schedule import preset
from rolltree.errors import RolltreeError
from rolltree.generate.independent import Independent
from rolltree.testing.tiny import Walk
from rolltree.tree import Tree
from rolltree_papers.dart import Dart, UncertainTurns
from studies.prompts.world import PromptWorld, run
from tests.rollout.flying import fly


def test_dart_gives_fewer_rollouts_to_what_is_solved() -> None:
    control = Dart(0.6)
    assert [control.width(p, 8) for p in (None, 0.0, 0.3, 0.59, 0.6, 0.75, 0.9, 1.0)] == [8, 8, 8, 8, 8, 5, 3, 2]
    assert Dart(0.6, least=4).width(1.0, 8) == 4
    with pytest.raises(ControlError, match="threshold=0"):
        Dart(0.0)


def test_dart_rescues_only_what_was_solved_before_and_by_the_newest_success() -> None:
    control, state, history = Dart(), Dart().start(), History()
    world = PromptWorld(logits=np.array([9.0, -40.0]), drift=0.0, gain=0.0)
    run(control, world, 1, prompts=2, width=4, state=state, history=history)
    assert list(state.newest) == ["p0"]
    world.logits[0] = -40.0  # forgotten
    (log,) = run(control, world, 1, prompts=2, width=4, state=state, history=history, first=2)
    rescues = [d.order for d in log.delivered if d.order.arm == "rescue"]
    assert [(o.prompt.uid, o.given, o.replaces) for o in rescues] == [("p0", (state.newest["p0"],), 1)]


def test_darts_horizon_is_that_of_the_longest_success() -> None:
    told: list[Delivery] = []

    class Watched(Dart):
        def plan(self, step: Any, state: Any) -> Any:
            plan, answer = Dart.plan(self, step, state), None
            while True:
                try:
                    orders = next(plan) if answer is None else plan.send(answer)
                except StopIteration:
                    return
                answer = yield orders
                told.extend(answer)

    class Few(Walk):
        def items(self, split: Any, seed: int = 0) -> Any:
            known = [next(Walk.items(self, split, seed)) for _ in range(1)]
            while True:
                yield from known

    fly(preset("sync"), task=Few(), control=Watched(), strategy=Independent(6))
    first = [d for d in told if d.order.arm == "plain"]
    longest = 0
    for d in first:
        assert d.order.turns is None or d.order.turns <= 6
        longest = max([longest, *(t for t, r in zip(d.turns, d.rewards, strict=True) if r > 0)])
    assert first[-1].order.turns == longest


def test_only_uncertain_turns_are_trained_and_a_rescue_stays_whole() -> None:
    tree = Tree("t", [0], task="t", item="i")
    for base in (0.1, 0.6):
        here = tree.root
        for more in (0.0, 0.1, 0.2):
            doubt = np.full(2, base + more, np.float32)
            here = tree.extend(here, [1, 2], logp=np.zeros(2, np.float32), entropy=doubt, status="done")
            here = tree.extend(here, [3], role="env", status="done")
        here.scores["reward"] = base
    given = tree.extend(tree.root, [4], logp=np.zeros(1, np.float32), forced=True, status="done")
    given.scores["reward"] = 1.0
    UncertainTurns(0.5)(tree, 48)
    kept = [n.keep is None for n in tree if n.role == "policy"]
    assert kept == [False, False, False, True, True, True, True]
    few = Tree("t", [0], task="t", item="i")
    lost = few.extend(few.root, [1], entropy=np.ones(1, np.float32), status="done", scores={"reward": 0.0})
    few.extend(few.root, [4], forced=True, status="done", scores={"reward": 1.0})
    UncertainTurns(0.8)(few, 48)
    assert lost.keep is None, "a rescue is no turn that others are less uncertain than"
    bare = Tree("t", [0], task="t", item="i")
    bare.extend(bare.root, [1], status="done", scores={"reward": 1.0})
    with pytest.raises(RolltreeError, match="ask for 'entropy'"):
        UncertainTurns()(bare, 48)
