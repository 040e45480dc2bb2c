"""What `codetree` promises beside what all of its kind do."""

from __future__ import annotations

from rolltree.control.ledger import Budget
from rolltree_papers.codetree import CodeTreeAnswers, CodeTreeRules, CodeTreeTexts
from tests.generate.search.test_answer_methods import grown, main_trees


def test_codetree_asks_a_thinker_and_charges_it() -> None:
    texts = CodeTreeTexts("{prompt}", "{says}", "{answer}{prompt}", "{prompt}")
    budget = Budget()
    forest = grown(CodeTreeAnswers(6, CodeTreeRules(2, 3), texts), budget)
    assert budget.spent.by_role["thinker"] > 0
    assert budget.spent.decoded == sum(len(n) for tree in forest for n in tree if n.role == "policy" and not n.forced)
    for tree in main_trees(forest):
        written = [n for n in tree if n.notes.get("operator") in ("solve", "debug")]
        assert 0 < len(written) <= 6
        assert tree.notes.get("answer") is not None
        chosen = max((n for n in tree if "value" in n.scores), key=lambda n: n.scores["value"])
        assert tree.notes["answer"] == chosen.notes["answer"], "the best seen, not the last"
