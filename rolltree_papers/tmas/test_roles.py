"""What `tmas` promises beside what all of its kind do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rolltree.control.ledger import Budget
from rolltree.generate.roles import is_side
from rolltree_papers.tmas.study import BANKS, banked, repeated
from studies.roles import grown, reader


def test_banks_hold_what_they_say_and_a_judge_at_chance_makes_experience_harm() -> None:
    shown, plain = (grown(banked(0.0, hide=hide), 0, 24, reader(trusts=True)) for hide in ((), ("guidelines",)))
    assert repeated(shown) < repeated(plain) - 0.15, "what was tried is avoided where it is shown"
    policy = reader(alone=0.7, trusts=True)

    def later(noise: float, hide: tuple[str, ...], keep: float = 0.5) -> float:
        forest = grown(replace(banked(noise, hide=hide, epsilon=0.0), keep=keep), 2, 30, policy)
        return float(np.mean([leaf.scores["reward"] for tree in forest if is_side(tree) for leaf in tree.leaves()]))

    assert later(0.0, ()) > later(0.0, ("experience",)) + 0.1
    chance = later(50.0, (), keep=-1e9), later(50.0, ("experience",), keep=-1e9)
    assert chance[0] < chance[1] - 0.05, "a judge that tells nothing lets errors in, and they are believed"


def test_answers_of_all_rounds_count_and_both_arms_of_tmas_have_the_same_budget() -> None:
    spent: list[Budget] = []
    for hide in ((), BANKS):
        spent.append(Budget())
        forest = grown(banked(0.5, hide=hide), 0, 24, reader(trusts=True), account=spent[-1])
        for tree in (t for t in forest if not is_side(t)):
            grades: dict[str, float] = {}
            for leaf in [n for t in forest if t.id.split("/")[0] == tree.id for n in t.leaves()]:
                grades[leaf.notes["answer"]] = grades.get(leaf.notes["answer"], 0.0) + leaf.scores["value"]
            assert tree.notes["answer"] == max(grades, key=lambda a: grades[a])
    one, two = (account.spent for account in spent)
    assert one.judge_calls == two.judge_calls == 24 * 4 * 4 * 8
    assert one.by_role.get("experience", 0) > two.by_role.get("experience", 0) == 0
