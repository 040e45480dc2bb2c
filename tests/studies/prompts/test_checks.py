"""What the evidence of allocation recipes rests on: the quick claims hold, the simulation is the plan's own path."""

from importlib import import_module

import numpy as np
import pytest

from rolltree.control.history import History
from rolltree.control.plan import Uniform
from rolltree.recipe.registry import load_recipe, recipes
from studies.prompts import checks, guided, rescue
from studies.prompts.page import table
from studies.prompts.world import PromptWorld, run


@pytest.mark.parametrize(("check", "better"), [("prompt_gdro", 1), ("v05", -1)])
def test_these_claims_hold_on_simulated_prompts(check, better):
    found = getattr(checks, check)(0)
    assert better * (found.value - found.baseline) > 0
    again = getattr(checks, check)(0)
    assert (again.value, again.baseline) == (found.value, found.baseline)


def test_dars_widens_groups_until_hard_prompts_weigh_more():
    for schedule in ("even", "hard"):
        share, used = checks.hard_share(schedule, 0)
        assert share > 1.5 * checks.hard_share(None, 0, round(used))[0]


def test_rollouts_that_measure_are_counted():
    logs = [checks.Log([], 8, 4, 100), checks.Log([], 8, 6, 400)]
    assert checks.yielded(logs) == 20


def test_weights_of_mean_one_keep_their_order():
    """Nothing is learned at a higher rate: the mean over a step's prompts is 1."""
    logs = run(checks.MeanOne(checks.PromptGdro()), checks.skewed(0), 20)
    for log in logs:
        weights = [d.order.marks["prompt_weight"] for d in log.delivered]
        assert np.mean(weights) == pytest.approx(1)
    assert len(set(weights)) > 1


def test_both_arms_of_a_check_draw_as_many_rollouts():
    for control in (checks.Dars(), Uniform()):
        logs = checks.until(control, checks.mostly_hard(0), 3000)
        assert 3000 <= sum(log.rollouts for log in logs) < 3000 + 16 * 32
    for name in ("dapo", "cog_rethinker"):
        parts = load_recipe(name).build()
        _, spent, asked = rescue.rescued(parts.control or Uniform(), parts.rounds, 0, 0.0)
        assert rescue.ROLLOUTS <= spent < 1.2 * rescue.ROLLOUTS
        assert (asked > 0) == (name == "cog_rethinker")


def test_rescues_help_some_prompts_and_harm_others():
    world = rescue.RescueWorld(500, helps=1.5)
    assert 0.1 < (world.moved < 0).mean() < 0.25


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
