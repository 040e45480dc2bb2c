"""ReEx-SQL and Polychromic PPO where they claim something: tokens that trees save, and answers that sets keep alive."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from rolltree.control.ledger import Budget
from rolltree.credit.registry import load_credit
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.recipe.recipe import RecipeError
from rolltree.recipe.registry import load_recipe
from rolltree.task.nano.sql import Sql
from rolltree.task.protocol import Item
from rolltree.testing.tiny import Walk, tiny_engine
from rolltree.tree import Tree
from rolltree.tree.table import table

CODEC = Letters(sorted(set("abcdefghijklmnopqrstuvwxyz0123456789 (),.<>=?*-_:\n\x00")), eos_id=0)
ITEM = Item("s", "pet(name,age,legs) who age>4?\n", "select name from pet where age>4",
            meta={"table": "pet", "columns": ("name", "age", "legs"), "hidden": (("ra", 4, 1), ("ti", 8, 2)),
                  "rows": (("ki", 5, 4), ("mo", 3, 2), ("lu", 9, 4))})  # fmt: skip
RIGHT, TYPO, OTHER = f"{ITEM.answer}\n", "select nam from pet where age>4\n", "select name from pet where legs>2\n"


def analyst(prefix: tuple[int, ...]) -> list[float]:
    """Misspells a column with p = 0.4, asks for something else with 0.1; mends what failed, submits what worked."""
    *lines, so_far = CODEC.decode(np.array(prefix)).split("\n")
    if lines[-1].startswith("err"):
        options = {RIGHT: 0.9, TYPO: 0.1}
    elif len(lines) == 1:
        options = {RIGHT: 0.5, TYPO: 0.4, OTHER: 0.1}
    else:
        options = {"ok\n": 1.0}
    row = np.zeros(CODEC.vocab_size)
    for line, p in options.items():
        if line.startswith(so_far):
            row[CODEC.encode(line[len(so_far)])[0]] += p
    return list(row / row.sum())


def answered(prompts: int = 12, **knobs: object) -> tuple[list[str], int]:
    """The majority answer of each tree, and the tokens decoded in all."""
    budget = Budget()
    items = [Item(f"s{i}", ITEM.prompt, ITEM.answer, 0, ITEM.meta) for i in range(prompts)]
    strategy = load_recipe("reex_sql", **knobs).build().strategy
    forest = asyncio.run(grow(strategy, TabularEngine(analyst, CODEC), Sql(), items, budget=budget, max_tokens=200))
    votes = [Counter(leaf.notes["answer"] for leaf in tree.leaves() if leaf.status == "done") for tree in forest]
    for tree, vote in zip(forest, votes, strict=True):
        if "decode" in knobs:
            assert vote[tree.notes["answer"]] == max(vote.values())
    return [vote.most_common(1)[0][0] for vote in votes], budget.spent.decoded


@pytest.mark.papers("reex_sql")
def test_tree_decoding_takes_less_and_answers_as_well() -> None:
    linear, paid = answered(group=8)
    tree, less = answered(group=8, decode="tree", width=8)
    assert less < 0.7 * paid
    right = [np.mean([answer == "ki,lu" for answer in answers]) for answers in (linear, tree)]
    assert right[0] > 0.9
    assert right[1] > 0.9


@pytest.mark.papers("reex_sql")
def test_execution_in_the_rollout_is_what_mends_a_failing_query() -> None:
    """The same policy held to one environment step answers half as often."""
    parts = load_recipe("reex_sql", group=64).build()
    scores: list[float] = []
    for turns in (2, 4):
        task = Sql(max_turns=turns)
        forest = asyncio.run(grow(parts.strategy, TabularEngine(analyst, CODEC), task, [ITEM], max_tokens=200))
        (tree,) = forest
        for shape in parts.shapers:
            shape(tree, 200)
        leaves = tree.leaves()
        scores.append(float(np.mean([leaf.scores["outcome"] for leaf in leaves])))
        mended = [leaf for leaf in leaves if leaf.scores["outcome"] and leaf.scores["exploration"] < 1]
        assert bool(mended) == (turns == 4)
        whole = next(leaf for leaf in leaves if leaf.scores["outcome"] and leaf.scores["exploration"] == 1)
        assert whole.scores["reward"] == 1.0
        assert (whole.scores["exact"], whole.scores["entities"]) == (1.0, 1.0)
    assert scores[0] < 0.65 < 0.8 < scores[1]


@pytest.mark.parametrize(
    ("query", "exact", "entities"),
    [("SELECT  name FROM pet\twhere age > 4 ;", 1, 1), ("select name from pet where legs>4", 0, 2 / 4),
     ("select nam from pet where age>4", 0, 2 / 3), ("select 1", 0, 0)],
)  # fmt: skip
def test_sql_measures_the_text_and_the_names_of_a_query(query: str, exact: float, entities: float) -> None:
    async def go() -> dict[str, float]:
        task = Sql()
        first = await task.step(ITEM, task.start(ITEM)[0], f"{query}\n")
        last = await task.step(ITEM, first.state, "ok\n")
        return dict((await task.verify(ITEM, last.state, "")).parts)

    parts = asyncio.run(go())
    assert (parts["exact"], parts["entities"]) == (exact, pytest.approx(entities))


def climbed(size: int, steps: int = 100, trees: int = 8, seed: int = 0) -> np.ndarray:
    """A bandit of eight arms, the first four right, under vines from one state credited in sets."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 0.5, 8)
    credit = load_credit("set_shared", size=size, by="vine")
    for _ in range(steps):
        p = np.exp(logits) / np.exp(logits).sum()
        arms = rng.choice(8, (trees, 8), p=p)
        forest: list[Tree] = []
        for i, row in enumerate(arms):
            tree = Tree(f"t{i}", [0])
            for arm in row:
                tree.extend(0, [arm], birth="vine", status="done", scores={"reward": float(arm < 4)},
                            notes={"answer": str(arm) if arm < 4 else None})  # fmt: skip
            forest.append(tree)
        tab = table(forest)
        advantage = credit(tab).node[[n.birth == "vine" for n in tab.nodes]].reshape(arms.shape)
        for row, credited in zip(arms, advantage, strict=True):
            for arm, a in zip(row, credited, strict=True):
                logits += 4 * a * (np.eye(8)[arm] - p) / arms.size
    return np.exp(logits) / np.exp(logits).sum()


def test_sets_keep_several_right_answers_where_single_returns_keep_few() -> None:
    ends = {size: [climbed(size, seed=seed)[:4] for seed in range(2)] for size in (4, 1)}
    assert all((p > 0.1).all() and p.sum() > 0.85 for p in ends[4]), ends
    assert all((p > 0.1).sum() < 4 for p in ends[1]), ends


@pytest.mark.papers("poly_ppo")
def test_poly_ppo_credits_vines_by_their_state_and_all_that_was_paid_stands_in_the_forest() -> None:
    parts = load_recipe("poly_ppo", rollouts=3, vines=6, window=1, slow=0.0).build()
    task = Walk()
    trees = list(asyncio.run(grow(parts.strategy, tiny_engine(), task, islice(task.items("train"), 6), seed=1)))
    tab = table(trees)
    node = parts.credit(tab).node
    for i, n in enumerate(tab.nodes):
        if n.birth == "vine":
            mates = [j for j, m in enumerate(tab.nodes) if m.birth == "vine" and tab.parent[j] == tab.parent[i]]
            assert len(mates) == 6
            assert abs(node[mates].sum()) < 1e-9
    assert np.abs(node).max() > 0


@pytest.mark.papers("poly_ppo")
def test_sets_as_large_as_the_vines_are_refused() -> None:
    with pytest.raises(RecipeError, match="vines=4 leave one set of size=4"):
        load_recipe("poly_ppo", vines=4).build()
