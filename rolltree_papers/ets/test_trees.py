"""What `ets` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree.latents.expected import Expected
from rolltree_papers.ets import StepSearch
from tests.latents.tiny import grown


@pytest.mark.parametrize("select", ["beam", "rebase", "ets"])
def test_searches_of_text_search_images(select: str) -> None:
    search = StepSearch(
        4, 4, "", Expected(), select, meaning="hidden", final="best",  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    tree = next(iter(grown(search)))
    done = [leaf for leaf in tree.leaves() if leaf.status == "done"]
    assert done
    assert tree.notes["answer"] == max(done, key=lambda leaf: leaf.scores["value"]).notes["answer"]
    assert any(e.why.startswith("judged") for e in tree.events)


@pytest.mark.parametrize("select", ["beam", "rebase"])
def test_a_search_whose_last_round_draws_nothing_goes_on_once(select: str) -> None:
    """Six steps and the prior are seven actions: a round of three ends before the last step, which has no noise."""
    search = StepSearch(
        4, 3, "", Expected(), select, meaning="hidden", final="best",  # pyright: ignore[reportArgumentType]
    )  # fmt: skip
    tree = next(iter(grown(search)))
    assert {leaf.status for leaf in tree.leaves()} <= {"done", "pruned"}
    assert any(leaf.status == "done" for leaf in tree.leaves())
    ends = [n for n in tree if n.role == "policy" and len(tree.prefix(n)) == 1 + 6]
    assert ends
    assert all(len(n.children) <= 1 for n in ends)
    assert any(e.why.startswith("nothing is drawn there") for e in tree.events)
