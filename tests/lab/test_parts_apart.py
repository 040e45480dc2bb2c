"""What tells two compositions apart is named; a flat control differs from its tree arm in the strategy alone."""

import pytest

from rolltree.compare.arms import arms
from rolltree.compare.compare import with_flat
from rolltree.compare.contrast import Measure, contrasts
from rolltree.compare.parts_apart import apart, said, shapes_trees
from rolltree.compare.runner import Spec
from rolltree.compare.train_runner import TrainRunner
from rolltree.generate.independent import Independent
from rolltree.recipe.recipe import RecipeError
from rolltree.recipe.registry import load_recipe
from tests.lab.simulated import Simulated, conditions


def made(name, **knobs):
    return load_recipe(name, **knobs).build()


def test_each_piece_is_told_from_the_others():
    base = made("grpo")
    assert apart(made("grpo"), base) == {}
    assert set(apart(made("grpo", group=16), base)) == {"width"}
    assert set(apart(made("grpo", clip=0.28), base)) == {"clip"}
    assert set(apart(made("grpo", use_credit="rloo"), base)) == {"credit"}
    assert {"clip", "filter"} <= set(apart(made("dapo"), base)), "not only what its name is about"
    assert said(apart(made("grpo", group=16), base)) == "width 16 (baseline 8)"
    assert said({}) == "nothing"


@pytest.mark.papers("adadagrad", "mars2")
def test_what_is_not_a_part_of_its_own_is_told_too():
    assert apart(made("treepo", segment=4), made("treepo")).keys() == {"knobs of the strategy"}
    assert "knobs of the strategy" not in apart(made("treepo"), made("grpo")), "they are those of another strategy"
    assert "knobs of the strategy" not in apart(made("grpo", group=16), made("grpo")), "its width is told as such"
    assert "prompts" in apart(made("adadagrad"), made("grpo"))
    assert "unit" in apart(made("mars2"), made("grpo"))


def test_knobs_of_the_trainer_are_told_where_they_differ_and_only_there():
    calibrated = (("optim.lr", 1e-4), ("optim.minibatches", 4))
    assert not {n for n in apart(made("areal"), made("grpo"), calibrated, calibrated) if n.startswith("optim.")}
    once = (("optim.lr", 1e-4), ("optim.minibatches", 1))
    assert apart(made("areal"), made("grpo"), once, once)["optim.minibatches"] == ("4", "1"), "it is made of four"
    found = apart(made("grpo"), made("grpo"), (("train.prompts", 4),), ())
    assert said(found) == "train.prompts 4 (baseline none)"


def test_a_flat_control_stands_beside_every_tree_arm_and_differs_in_the_strategy_alone():
    chosen = with_flat(arms(["grpo", "treepo"], ["treepo:leaves=6"]), conditions(), TrainRunner())
    assert [a.label for a in chosen] == ["grpo", "treepo", "treepo flat"]
    tree, flat = (TrainRunner().parts(Spec(a, 0, conditions())) for a in chosen[1:])
    assert shapes_trees(tree.strategy)
    assert not shapes_trees(flat.strategy)
    assert isinstance(flat.strategy, Independent)
    assert flat.strategy.n == 6
    assert set(apart(tree, flat)) == {"strategy"}


def test_a_tree_is_held_against_the_baseline_and_against_its_flat_control():
    seen = {label: Measure({s: v + 0.01 * s for s in range(4)}, None)  # pyright: ignore
            for label, v in {"grpo": 0.1, "treepo": 0.4, "treepo flat": 0.3}.items()}  # fmt: skip
    made = contrasts(seen, "grpo", "pass@1")
    assert [(c.subject, c.baseline) for c in made] == [
        ("treepo", "grpo"), ("treepo flat", "grpo"), ("treepo", "treepo flat")]  # fmt: skip
    assert [c.effect.estimate for c in made] == pytest.approx([0.3, 0.2, 0.1])


def test_runs_that_are_no_recipes_have_no_controls():
    assert len(with_flat(arms(["a", "b"]), conditions(), Simulated({"a": 0.1}))) == 2


def test_a_group_of_one_is_no_control():
    with pytest.raises(RecipeError, match="use_flat=1 leaves nothing to compare"):
        load_recipe("treepo", use_flat=1)
