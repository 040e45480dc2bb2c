"""MedS³'s search: direct answers by depth, one revision of a wrong answer, sure nodes finished, a cap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rolltree.errors import RolltreeError
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.steps import STEP_VALUE
from rolltree_papers.meds3 import SlowThinking
from rolltree_papers.meds3.study import LETTERS, exact, grown, slips

SLOW = SlowThinking(nodes=12, samples=12, least=3)


def said(tree: Tree, operator: str) -> int:
    """How often an action was chosen."""
    return sum(e.kind == "select" and e.why.startswith(operator) for e in tree.events)


def test_a_step_is_worth_the_share_of_right_direct_answers_and_deeper_ones_have_fewer() -> None:
    assert [SlowThinking().count(depth) for depth in range(6)] == [20, 10, 6, 5, 5, 5]
    (tree,) = grown(SLOW, 0, 1)
    found = 0
    for node in tree:
        if "node_value" not in node.scores:
            continue
        found += 1
        depth = LETTERS.decode(tree.prefix(node)).count(",")
        share = node.scores["node_value"] * SLOW.count(depth)
        assert share == pytest.approx(round(share)), "of as many answers as its depth has"
        assert 0 <= node.scores[STEP_VALUE] <= 1
    assert found >= 3


def test_a_wrong_answer_is_revised_once_and_the_cap_holds() -> None:
    never = replace(SLOW, nodes=60, right=100, exploration=50.0)
    revised = 0
    for tree in grown(never, 1, 3):
        assert sum(said(tree, action) for action in ("reason", "finish", "reflect")) <= 60
        for node in tree:
            text = LETTERS.decode(tree.prefix(node))
            assert text.count("?") <= 2, "a revision is not revised"
            if node.role == "prompt" and text.count("?") == 2:
                revised += 1
                assert slips(text) > 1, "right answers stand"
    assert revised
    plain = grown(replace(never, reflect=""), 1, 1)
    assert not any(said(tree, "reflect") for tree in plain)


def test_sure_nodes_are_finished_and_right_answers_end_the_search() -> None:
    (tree,) = grown(replace(SLOW, nodes=60, sure=0.3, right=1), 2, 1)
    assert said(tree, "finish")
    (longer,) = grown(replace(SLOW, nodes=60, sure=0.3, right=30), 2, 1)
    assert said(tree, "") < said(longer, "")
    (unsure,) = grown(replace(SLOW, sure=1.1), 2, 1)
    assert not said(unsure, "finish")


def test_exact_values_are_what_the_chain_says() -> None:
    assert exact("") == pytest.approx(0.6**6 + 6 * 0.4 * 0.6**5)
    assert exact("x,y,") == 0
    assert exact("a,a,a,a,a,") == 1


def test_the_recipe_refuses_what_grows_nothing() -> None:
    with pytest.raises(RolltreeError, match="give 'comp' or 'children'"):
        load_recipe("meds3", backup="half").build()
    with pytest.raises(RolltreeError, match="least=0"):
        load_recipe("meds3", least=0).build()
