"""What `drive` promises beside what all of its kind do."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.control.history import History
from rolltree.control.order import ControlError
from rolltree_papers.drive import Drive
from studies.prompts.world import PromptWorld, run


def test_drive_keeps_the_hardest_and_gives_them_more_rollouts() -> None:
    world = PromptWorld(logits=np.linspace(-4, 4, 20), drift=0.0, gain=0.0)
    control = Drive(20, (8, 4), broad=2, each=3, hard=24, probes=200)
    state, history, asked = control.start(), History(), []
    for number in range(1, 10):
        (log,) = run(control, world, 1, prompts=6, width=4, state=state, history=history, first=number)
        trained = [d.order for d in log.delivered if d.order.for_training]
        asked.append(({int(o.prompt.uid[1:]) for o in trained}, {o.width for o in trained}, log.rollouts))
        assert number in (3, 6) or all(d.order.for_training for d in log.delivered)
    assert all(widths == {None} for _, widths, _ in asked[:2])
    assert all(widths == {24} for _, widths, _ in asked[2:])
    assert set().union(*(uids for uids, _, _ in asked[2:5])) <= set(range(9)), "sampling may swap neighbours"
    assert len(state.hard) == 4
    assert {int(uid[1:]) for uid in state.hard} <= set(range(6))
    with pytest.raises(ControlError, match="must shrink"):
        Drive(20, (8, 12))
