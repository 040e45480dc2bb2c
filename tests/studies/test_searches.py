"""The searches' controls and the page of variants: same seed, same numbers; every switch is explained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rolltree.compare.stats import paired_interval
from rolltree.recipe.registry import knobs_of, load_recipe
from rolltree.tree import Tree
from rolltree_papers.mars2 import Attempts
from studies.searches import Copying, drafter, grown, mender, solved, votes, within
from studies.variants import ROLLOUTS, VariantRow, compared, mars2_rows, preference
from studies.variants_page import ABOUT, verdict, write_page


def test_the_agents_are_what_they_are_called() -> None:
    """A drafter is right with 0.55 whatever it has seen; a mender with 0.25 at first, far more often behind a draft."""
    forest = grown(Attempts(6, agents=("policy", "peer"), choose="chance"), 0, 60, drafter(), peer=mender())
    first: dict[str, list[float]] = {"policy": [], "peer": []}
    later: dict[str, list[float]] = {"policy": [], "peer": []}
    for tree in forest:
        for node in tree:
            if "reward" in node.scores:
                deep = sum(n.role == "prompt" for n in tree.path(node)) > 1
                (later if deep else first)[node.actor].append(node.scores["reward"])
    assert np.mean(first["policy"]) == pytest.approx(0.55, abs=0.06)
    assert np.mean(first["peer"]) == pytest.approx(0.25, abs=0.06)
    assert np.mean(later["policy"]) == pytest.approx(0.55, abs=0.06)
    assert np.mean(later["peer"]) > 0.6


def test_same_seed_same_numbers() -> None:
    runs = [solved(grown(Attempts(6), 3, 20, drafter(), peer=mender())) for _ in range(2)]
    assert runs[0] == runs[1]
    assert Copying().max_turns == 0


def test_shaping_is_what_tells_improvement_apart() -> None:
    trees = list(grown(Attempts(12), 0, 30, drafter(), peer=mender()))
    plain = [preference(tree, gamma=0.0) for tree in trees]
    shaped = [preference(tree) for tree in trees]
    assert np.nanmax(np.abs(plain)) < 1e-9
    assert np.nanmean(shaped) > 0.1


def test_every_switch_is_a_knob_and_is_explained() -> None:
    for contrast in ROLLOUTS:
        for knobs in (contrast.released, contrast.here, contrast.common):
            assert knobs.keys() <= knobs_of(contrast.recipe).keys()
        load_recipe(contrast.recipe, **contrast.common, **contrast.released).build()
        assert f"{contrast.recipe}: {contrast.switch}" in ABOUT
    assert {f"{row.recipe}: {row.switch}" for row in mars2_rows(3, 0)} <= ABOUT.keys()


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


def test_votes_by_number_by_weight_and_by_the_best() -> None:
    voters = [("a", 0.2), ("a", 0.2), ("b", 0.5), ("c", 0.6), ("c", 0.1)]
    assert votes(voters) == ("a", "c", "c")
    assert votes([("b", 0.5), ("a", 0.4), ("a", 0.4)]) == ("a", "a", "b")
    assert votes([]) == (None, None, None)


def test_votes_may_decode_what_the_search_did() -> None:
    tree = Tree("t", [0])
    for length in (3, 4, 5):
        tree.extend(0, [1] * length, status="done")
    assert [len(leaf) for leaf in within(tree, 7)] == [3, 4]
    assert [len(leaf) for leaf in within(tree, 1)] == [3]
