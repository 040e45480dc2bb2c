"""A format is worth something to a reader, not by itself: the factorial study finds the interaction and its absence."""

from __future__ import annotations

from studies.renderers import READERS, RENDERERS, factorial, interaction


def test_a_reader_of_one_format_alone_makes_the_interaction() -> None:
    cells = factorial(items=40)
    plain, bound = READERS
    assert interaction(cells, plain, bound) > 0.4
    assert interaction(cells, plain, plain) == 0.0
    agnostic = [cells[plain, name].right for name in RENDERERS]
    assert max(agnostic) - min(agnostic) < 0.15, "who reads every format has no favourite"
    assert cells[bound, "adjacent"].right > 0.8
    assert cells[bound, "lines"].right < 0.4
    assert cells[plain, "adjacent"].tokens < cells[plain, "equals"].tokens < cells[plain, "lines"].tokens
