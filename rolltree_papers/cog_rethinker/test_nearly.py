"""What `cog_rethinker` promises beside what all of its kind do."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.control.order import ControlError, Order
from rolltree_papers.cog_rethinker import CogRethinker
from studies.prompts.world import PromptWorld, run


def test_cog_rethinker_asks_only_the_dead_and_stops_where_they_live() -> None:
    world = PromptWorld(logits=np.array([9.0, -3.0, -40.0]), drift=0.0, per_hint=50.0)
    control = CogRethinker(decompose="0123", reflect="{wrong}", examples=0)
    state = control.start()
    (log,) = run(control, world, 1, prompts=3, width=6, state=state)
    arms = [(d.order.prompt.uid, d.order.arm) for d in log.delivered]
    assert [arm for uid, arm in arms if uid == "p0"] == ["plain"]
    assert [arm for uid, arm in arms if uid == "p2"] == ["plain", "decompose", "reflect"]
    rescues = [d.order for d in log.delivered if d.order.arm != "plain"]
    assert all(o.brief is not None and o.brief.hides and o.leaf_marks == {"rescued": 1.0} for o in rescues)
    assert "p0" in state.solved.solved
    with pytest.raises(ControlError, match="no place for answers"):
        CogRethinker(reflect="again")


def test_cog_rethinker_shows_reflections_that_came_out_right() -> None:
    class Reflecting(PromptWorld):
        def rate(self, order: Order) -> float:
            return float(order.arm == "reflect")

    control = CogRethinker(decompose="", example="[{prompt}|{answer}]")
    state = control.start()
    logs = run(control, Reflecting(logits=np.array([0.0, 0.0])), 2, prompts=1, width=2, state=state)
    first, second = ([d.order for d in log.delivered if d.order.arm == "reflect"] for log in logs)
    texts = [order.brief.text for order in (*first, *second) if order.brief is not None]
    assert "[" not in texts[0], "nothing was rewritten yet"
    assert texts[1].startswith("[prompt 0\n0123456789|0123456789]"), (
        "the prompt, its wrong answers, and what came of it"
    )
