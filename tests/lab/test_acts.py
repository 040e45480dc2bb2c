"""A counter rests in the baseline and moves in the recipe: each in a tiny run, generic over the registry."""

from __future__ import annotations

import pytest

from rolltree.recipe.recipe import Counter
from rolltree.recipe.registry import list_recipes
from studies.lab.acts import FOUNDATION, LONGER, PAGE, SHARED, Act, measure, page

NAMES = [card.name for card in list_recipes()]
QUICK = {
    "ace", "aepo", "areal", "arise", "arrol", "bapo", "brpo", "cispo", "clip_cov", "codetree", "d3s", "dapo", "dars",
    "dars_b", "dart", "dots", "dr_grpo", "dual_clip", "fapo", "gmpo", "gspo", "guide", "icepop", "kl_cov", "latr",
    "m2po", "mc_grpo", "minpro", "prompt_gdro", "rebuttal_agent", "remix", "rloo", "rollout_gdro", "seele",
    "soft_sapo", "tis", "v05", "vcpo",
}  # fmt: skip
"""Those whose counter or needs went wrong once, and one of each kind; the others are slow together."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in NAMES])
def test_a_counter_rests_in_the_baseline_and_moves_in_the_recipe(name: str) -> None:
    act = measure(name)
    assert act.acted or name in LONGER, f"{name} never acted: {act.own}"
    assert act.rests != (name in SHARED), f"{act.baseline} moves the counter of {name}: {act.theirs}"


def test_whoever_is_excused_exists() -> None:
    assert {*FOUNDATION, *SHARED, *LONGER, *QUICK} <= set(NAMES)


def test_the_page_has_every_recipe() -> None:
    rows = [line.split(" ")[1] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    assert rows == NAMES, "run python -m studies.lab.acts"


def test_the_page_says_where_a_recipe_only_looks_as_if_it_acted() -> None:
    counter = Counter("policy/clip_high")
    told = page([
        Act("x", counter, (0.2, None), "grpo", (0.0, None)), Act("y", counter, (0.2, 0.4), "grpo", (0.1, 0.0)),
        Act("z", counter, (None, None), "grpo", ()),
    ]).splitlines()  # fmt: skip
    assert told[-3] == "| x | `policy/clip_high` | grpo | 0 | 0.2 | 1 of 2 |  |"
    assert told[-2].endswith("| 2 of 2 | not at rest in the baseline |")
    assert told[-1].endswith("| – | – | 0 of 2 | needs a longer run than this |")
