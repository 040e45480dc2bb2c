"""What `vade` promises beside what all of its kind do."""

from itertools import pairwise

import pytest

from rolltree.control.history import History
from rolltree.control.pool import Shuffled
from rolltree_papers.vade import Vade
from studies.prompts.oracles import OraclePick
from studies.prompts.world import PromptWorld, run


@pytest.mark.parametrize("make", [lambda: Vade(12, fresh=3), lambda: Shuffled(12, fresh=3)], ids=["vade", "shuffled"])
def test_a_pool_that_changes_between_steps(make):
    world, control = PromptWorld(100, seed=6), make()
    state, history = control.start(), History()
    pool = state.pool if isinstance(control, Vade) else state
    seen = []
    for number in range(1, 5):
        run(control, world, 1, prompts=4, width=4, state=state, history=history, first=number)
        seen.append(list(pool.ids))
    assert all(len(ids) == 12 for ids in seen)
    assert all(later[:-3] == before[3:] for before, later in pairwise(seen))


def test_vade_beats_uniform_choice_and_not_the_oracle():
    shares = []
    for make in (lambda w: Shuffled(200), lambda w: Vade(200), OraclePick):
        world = PromptWorld(200, seed=0)
        logs = run(make(world), world, 50, prompts=16)[15:]
        shares.append(sum(x.effective for x in logs) / sum(x.groups for x in logs))
    uniform, ours, oracle = shares
    assert uniform + 0.05 < ours < oracle
