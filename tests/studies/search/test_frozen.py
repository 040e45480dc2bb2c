"""The majority is held against a random one of the very answers that it votes on."""

from __future__ import annotations

import pytest

from rolltree.tree import Tree
from studies.search.frozen import voted


@pytest.mark.parametrize(
    ("answers", "chosen", "expected"),
    [
        (["a", "b", "b", None], "b", (1.0, 2 / 3, 1.0)),
        (["b", "b"], "b", (1.0, 1.0, 0.0)),
        ([None], None, (0.0, 0.0, 0.0)),
    ],
)
def test_rollouts_without_an_answer_count_for_neither_side(
    answers: list[str | None], chosen: str | None, expected: tuple[float, ...]
) -> None:
    tree = Tree("q", [0])
    for answer in answers:
        leaf = tree.extend(tree.root, [1], status="done")
        leaf.scores["reward"] = float(answer == "b")
        leaf.notes["answer"] = answer
    tree.notes["answer"] = chosen
    assert voted(tree) == pytest.approx(expected)
