"""What `aepo` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree.recipe.registry import load_recipe
from rolltree_papers.aepo import starts
from tests.recipe.test_tree_recipes import grown


@pytest.mark.parametrize(
    ("leaves", "gap", "m"), [(16, 0.0, 9), (16, -0.5, 7), (16, 0.5, 10), (16, 50.0, 16), (16, -50.0, 1), (5, 0.0, 3)]
)
def test_aepo_starts_more_rollouts_where_the_root_is_more_uncertain_than_the_tools(
    leaves: int, gap: float, m: int
) -> None:
    assert starts(leaves, gap) == m


def test_aepos_probe_is_one_of_the_leaves_and_its_split_is_on_record() -> None:
    trees, _ = grown(load_recipe("aepo", leaves=6).build())
    for tree in trees:
        allocated = [e for e in tree.events if e.kind == "allocate"]
        assert len(allocated) == 1
        assert allocated[0].numbers["starts"] == starts(
            6, 0.5 * (allocated[0].numbers["at_root"] - allocated[0].numbers["at_tools"])
        )
        assert sum(leaf.status == "done" for leaf in tree.leaves()) == 6
