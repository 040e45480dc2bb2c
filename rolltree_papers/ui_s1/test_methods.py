"""What `ui_s1` promises beside what all of its kind do."""

from __future__ import annotations

from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree_papers.ui_s1 import FirstReturns


def along(returns: list[list[bool]]) -> Tree:
    """Rollouts along a demonstration by whether each of their turns matched it."""
    tree = Tree("t", [0])
    for matches in returns:
        here = tree.root
        for match in matches:
            turn = tree.extend(here, [1], status="done", scores={"match": float(match), "step_reward": float(match)})
            if not match:
                turn.scores["reward"] = 0.0
                turn = tree.extend(here, [2], role="hint", status="done", scores={"patch": 1.0})
            here = tree.extend(turn, [3], role="env", status="done")
        here.scores["reward"] = 1.0
    return tree


def test_ui_s1_wants_tasks_whose_first_returns_spread() -> None:
    rule = FirstReturns(0.3, gamma=0.5)
    # Returns 1 + 0.5 + 0.25 and 1 + 0.5: a deviation of 0.125.
    assert "0.12, not above 0.3" in (rule(along([[True, True, True], [True, True, False]])) or "")
    # 1.75 and 0, whatever stands behind the patch: 0.875.
    assert rule(along([[True, True, True], [False, True, True]])) is None
    assert "0.00" in (rule(along([[False, True], [False, False]])) or "")
    # The environment pays for the first step of one of them: 2.5 and 1.5, as the credit's returns have it.
    paid = along([[True, True], [True, True]])
    next(node for node in paid if node.role == "env").scores["step_reward"] = 1.0
    assert rule(paid) is None
    recipe = load_recipe("ui_s1")
    assert recipe.build().filters == (rule,)
    assert recipe.build().rounds > 1
