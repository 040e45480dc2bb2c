"""What the evidence of allocation recipes rests on: the quick claims hold, the simulation is the plan's own path."""

from importlib import import_module

import numpy as np

from rolltree.control.history import History
from rolltree.control.plan import Uniform
from rolltree.recipe.registry import recipes
from studies.prompts import checks
from studies.prompts.page import table
from studies.prompts.world import PromptWorld, run


def test_both_arms_of_a_check_draw_as_many_rollouts():
    logs = checks.until(Uniform(), checks.mostly_hard(0), 3000)
    assert 3000 <= sum(log.rollouts for log in logs) < 3000 + 16 * 32


def test_the_world_learns_from_variance_alone_and_drifts():
    world = PromptWorld(logits=np.array([0.0, 50.0, -50.0]), drift=0.0, gain=0.1)
    run(Uniform(), world, 5, prompts=3)
    assert world.logits[0] > 0.2
    assert world.logits[1:].tolist() == [50.0, -50.0]
    still = PromptWorld(20, seed=1, gain=0.0, drift=0.5)
    before = still.logits.copy()
    run(Uniform(), still, 1, prompts=4, history=History())
    assert (still.logits != before).all()


def test_every_check_a_card_names_is_there():
    asked = [r.card.evidence for r in recipes().values() if r.card.evidence is not None]
    named = [evidence.check for evidence in asked if evidence.check]
    assert named
    for check in named:
        module, _, function = check.partition(":")
        assert callable(getattr(import_module(module), function))


def test_a_table_has_a_cell_per_column():
    text = table(["a", "b"], [("x", [[1.0, 2.0, 3.0]])])
    assert text.splitlines()[-1].startswith("| x | 2.000 ± ")
