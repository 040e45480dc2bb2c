"""Screens that cannot be copied: coverage, what going back costs, popups, and what pairs of siblings teach."""

from __future__ import annotations

import numpy as np

from rolltree_papers.treecua.study import episodes, pairs, screens, tree


def test_every_screen_can_be_reached_and_actions_on_the_way_back_are_counted() -> None:
    world = screens(0, popups=0.0)
    assert {s for row in world.leads for s in row} == set(range(200))
    seen, graph = tree(world, 300, 0)
    assert seen.actions > len(seen.depths), "ways back cost actions"
    assert not seen.diverged
    assert max(n.depth for n in graph) <= 12
    for node in graph:
        if node.notes.get("tried") and node.depth:
            assert node.parent is not None
            assert node.payload[0] == world.leads[node.parent.payload[0]][node.payload[1]]


def test_a_popup_on_the_way_is_noticed_and_nothing_is_done_behind_it() -> None:
    seen, _ = tree(screens(1, popups=0.2), 600, 1)
    assert seen.popups == seen.diverged > 0


def test_where_going_back_is_free_the_tree_sees_more_than_episodes() -> None:
    """Per action that is not on the way back: what is left open is not proposed in vain."""
    gains = []
    for seed in range(3):
        seen, _ = tree(screens(seed, popups=0.0), 800, seed)
        flat = episodes(screens(seed), len(seen.depths), seed)
        gains.append(len(seen.pairs) - len(flat.pairs))
    assert np.mean(gains) > 0


def test_pairs_of_siblings_teach_and_are_repeated_by_their_seed() -> None:
    """That they teach more than pairs of any two actions is the paper's claim; the study measures it."""
    assert pairs(0, 3000, True) > 1.5 * pairs(0, 0, True)
    assert pairs(1, 500, False) == pairs(1, 500, False)
