"""What `slideforge` promises beside what all of its kind do."""

from __future__ import annotations

from itertools import pairwise

import pytest

from rolltree.filter.parts import Composite
from rolltree.filter.shaping import SLIDES, delta
from rolltree.tree import Tree
from rolltree_papers.slideforge import study as slides
from tests.studies.exact.test_written import ids


def test_the_reader_finds_what_is_named_and_guesses_the_rest() -> None:
    found = slides.read(ids(slides.WORDS, "energy | trade | managers and"))
    assert found["topic"] == "energy trade"
    assert found["audience"] == "managers"
    assert found["num_slides"] == 3
    told = slides.read(ids(slides.WORDS, "grid grid port port chart |"))
    assert (told["topic"], told["audience"]) == ("energy trade", "managers")


def test_a_covered_deck_is_read_by_its_content_alone() -> None:
    told = slides.read(slides.covered(ids(slides.WORDS, "energy grid port port chart |")))
    assert (told["topic"], told["audience"], told["num_slides"]) == ("energy trade", "managers", 2)
    names = slides.covered(ids(slides.WORDS, "trade health managers trade health managers"))
    assert names == slides.covered(ids(slides.WORDS, "energy cities experts cities energy experts"))


def test_a_compromise_is_counted_where_both_rewards_would_choose_otherwise() -> None:
    def group(*decks: tuple[float, float]) -> Tree:
        tree = Tree("t", [0])
        for brief, content in decks:
            parts = dict.fromkeys((part.name for part in SLIDES.parts), 0.0) | {"brief": brief, "content": content}
            tree.extend(0, [1], status="done", scores={"reward": 0.0, **parts})
        Composite(SLIDES)(tree, 1)
        return tree

    met = slides.Compromises()
    met(group((1.0, 0.0), (0.0, 1.0), (0.7, 0.7)), 1)
    assert met.found == 1
    met(group((1.0, 0.0), (0.0, 0.5)), 1)
    assert met.found == 1


def test_changes_of_quality_sum_to_the_last_less_the_first() -> None:
    world = slides.Briefs(0)
    deck = [ids(slides.WORDS, t) for t in ("so so so so so so", "grid so so so so so", "grid | so so so so")]
    quality = [world.recovered(0, words) for words in deck]
    steps = [delta(a, b) for a, b in pairwise(quality)]
    assert sum(steps) == pytest.approx(quality[-1] - quality[0])
