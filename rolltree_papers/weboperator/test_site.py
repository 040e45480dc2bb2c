"""A site that forgets and does not forgive: what going back blindly does, and what looking first catches."""

from __future__ import annotations

from random import Random

import pytest

from rolltree_papers.weboperator.study import KNOWING, arms, episode, harmless
from rolltree_papers.weboperator.study_world import Live, site


def test_a_panel_is_closed_when_the_page_is_opened_anew_and_lists_move_up_after_a_deletion() -> None:
    place = next(s for s in (site(Random(i)) for i in range(50)) if s.pages[0].hidden)
    live = Live(place, Random(0), popups=0.0)
    panel = next(i for i, thing in enumerate(live.seen()) if thing.kind == "panel")
    closed = live.seen()
    live.click(panel)
    assert len(live.seen()) == len(closed) - 1 + len(place.pages[0].hidden)
    opened = live.seen()
    live.deleted.add("something")
    assert live.seen() == opened[1:]
    live.open(0)
    assert live.seen() == closed


@pytest.fixture(scope="module")
def found():
    return arms(0, sites=40, popups=0.0)


def test_going_back_blindly_clicks_other_things_and_looking_first_never_does(found) -> None:
    assert sum(e.wrong for e in found["best first"]) > 10
    assert sum(e.wrong for e in found["looking first"]) == 0
    assert sum(e.caught for e in found["looking first"]) > 10


def test_what_cannot_be_undone_is_seldom_done_by_those_who_know_it(found) -> None:
    for arm in KNOWING:
        assert sum(e.harm for e in found[arm]) < 0.2 * sum(e.harm for e in found["best first"])
    assert harmless(found["patient"]) > harmless(found["best first"])


def test_the_same_seed_is_the_same_episode() -> None:
    place = site(Random(3))
    assert episode(place, "WebOperator", 5) == episode(place, "WebOperator", 5)
