"""Node compression: what moves, what stays the same, and the rows that come of it."""

from __future__ import annotations

from random import Random

from rolltree.analysis.compress import StepRun, compressed


def leaf(text: str, right: int) -> StepRun:
    return StepRun(text, right, 1)


def test_one_of_many_children_goes_beside_its_parent_with_both_steps_as_one() -> None:
    parent = StepRun("p", children=[leaf("a", 1), leaf("b", 0), leaf("c", 0), leaf("d", 0)])
    root = StepRun(children=[parent, leaf("q", 1)])
    out, moved = compressed(root, Random(0), chance=1.0)
    assert moved == 1
    left, other, merged = out.children
    assert ([c.text for c in left.children], other.text) == (["b", "c", "d"], "q")
    assert (merged.text, merged.steps, merged.value) == ("pa", 2, 1.0)
    assert left.value == 0.0, "its labels are counted anew"
    assert (parent.value, len(parent.children)) == (0.25, 4), "the tree itself stays as it is"


def test_few_children_and_those_of_the_prompt_stay() -> None:
    few = StepRun(children=[StepRun("p", children=[leaf("a", 1), leaf("b", 0), leaf("c", 0)])])
    assert compressed(few, Random(0), chance=1.0)[1] == 0
    wide = StepRun(children=[leaf(t, 0) for t in "abcd"])
    assert compressed(wide, Random(0), chance=1.0)[1] == 0
