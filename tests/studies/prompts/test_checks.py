"""What the evidence of allocation recipes rests on: the quick claims hold, the simulation is the plan's own path."""

from importlib import import_module

import numpy as np
import pytest

from rolltree.control.history import History
from rolltree.control.plan import Uniform
from rolltree.recipe.registry import recipes
from studies.prompts import checks, guided
from studies.prompts.page import table
from studies.prompts.world import PromptWorld, run


@pytest.mark.parametrize(("check", "better"), [("dars", 1), ("v05", -1), ("grpo_roc", -1)])
def test_these_claims_hold_on_simulated_prompts(check, better):
    found = getattr(checks, check)(0)
    assert better * (found.value - found.baseline) > 0
    again = getattr(checks, check)(0)
    assert (again.value, again.baseline) == (found.value, found.baseline)


def test_a_wrong_prior_costs_rollouts_and_a_right_one_saves_error():
    right, wrong = (checks.baseline_error(kind, 0) for kind in ("right", "always 0.9"))
    assert wrong[2] > right[2]
    assert wrong[0] < wrong[1], "more rollouts mend what shrinkage alone spoils"


def test_guidance_teaches_the_unguided_policy():
    assert guided.train("guide", 0)[0] > 100 * guided.START


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
    named = [evidence.check for evidence in asked if "studies.prompts" in evidence.check]
    assert len(named) >= 9
    for check in named:
        module, _, function = check.partition(":")
        assert callable(getattr(import_module(module), function))


def test_a_table_has_a_cell_per_column():
    text = table(["a", "b"], [("x", [[1.0, 2.0, 3.0]])])
    assert text.splitlines()[-1].startswith("| x | 2.000 ± ")
