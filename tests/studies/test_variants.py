"""The page of variants: every switch is a knob and is explained, and what is seen is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolltree.compare.stats import paired_interval
from rolltree.recipe.registry import knobs_of, load_recipe
from studies.papers import installed
from studies.variants import ROLLOUTS, VariantRow, compared
from studies.variants_page import ABOUT, verdict, write_page


def test_every_switch_is_a_knob_and_is_explained() -> None:
    for contrast in (each for each in ROLLOUTS if installed(each.recipe)):
        for knobs in (contrast.released, contrast.here, contrast.common):
            assert knobs.keys() <= knobs_of(contrast.recipe).keys()
        load_recipe(contrast.recipe, **contrast.common, **contrast.released).build()
        assert f"{contrast.recipe}: {contrast.switch}" in ABOUT


@pytest.mark.papers("echo")
def test_the_page_says_which_differences_are_seen(tmp_path: Path) -> None:
    switch = ROLLOUTS[0].switch
    clear = compared("echo", switch, "tokens", [5.0, 6.0, 7.0, 5.0], [1.0, 1.0, 2.0, 1.0])
    none = VariantRow("echo", switch, "answers", 1.0, 1.0, paired_interval([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]))
    assert clear.matters
    assert not none.matters
    assert verdict([clear, none]) == "**It matters** for tokens; none is seen in answers."
    assert verdict([none]) == "**No difference is seen** in answers."
    text = write_page(tmp_path, [clear, none], (0.194, 0.197), 4).read_text()
    assert "| tokens | 5.75 | 1.25 | -4.5 [" in text
