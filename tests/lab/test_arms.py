"""What people write on a command line becomes arms."""

import pytest

from rolltree.compare.arms import Arm, arms, setting, swept
from rolltree.compare.trace import LabError


def test_values_have_their_types():
    assert setting("clip=0.2") == ("clip", 0.2)
    assert setting("overlong=true") == ("overlong", True)
    assert setting("mode = tree") == ("mode", "tree")
    assert swept("group=4,8") == ("group", (4, 8))


def test_knobs_for_all_and_for_one():
    made = arms(["grpo", "dapo"], ["optim.lr=1e-3", "dapo:rounds=2"])
    assert made[0] == Arm("grpo", "grpo", (("optim.lr", 1e-3),))
    assert made[1] == Arm("dapo", "dapo", (("optim.lr", 1e-3), ("rounds", 2)))


def test_what_is_set_for_one_recipe_goes_before_what_is_set_for_all_in_any_order():
    for order in (["dapo:clip_low=0.1", "clip_low=0.3"], ["clip_low=0.3", "dapo:clip_low=0.1"]):
        assert [dict(a.knobs)["clip_low"] for a in arms(["gspo", "dapo"], order)] == [0.3, 0.1]


@pytest.mark.papers("arpo")
def test_a_recipe_is_compared_with_itself_by_the_knobs_it_brings():
    made = arms(["grpo", "arpo(first=16, kl=0.1)", "arpo"], ["arpo:kl=0.2", "optim.lr=1e-3"])
    assert [a.label for a in made] == ["grpo", "arpo(first=16, kl=0.1)", "arpo"]
    assert made[1] == Arm("arpo(first=16, kl=0.1)", "arpo", (("first", 16), ("kl", 0.1), ("optim.lr", 1e-3)))
    assert made[2] == Arm("arpo", "arpo", (("kl", 0.2), ("optim.lr", 1e-3)))


def test_sweeps_combine():
    made = arms(["grpo"], ["clip=0.5"], ["group=4,8", "clip=0.1,0.2"])
    assert [a.label for a in made] == [f"grpo group={g} clip={c}" for g in (4, 8) for c in (0.1, 0.2)]
    assert dict(made[0].knobs) == {"group": 4, "clip": 0.1}


@pytest.mark.parametrize(
    ("recipes", "settings", "sweeps", "says"),
    [
        (["a"], ["clip"], [], "name=value"),
        (["a"], [], ["clip="], "name=a,b,c"),
        (["a"], [], ["clip=1,1"], "twice"),
        (["a", "a"], [], [], "named twice"),
        (["a"], ["b:clip=1"], [], "not compared"),
    ],
)
def test_bad_arms(recipes, settings, sweeps, says):
    with pytest.raises(LabError, match=says):
        arms(recipes, settings, sweeps)
