"""Step labels: values against exact ones, rows in the trainers' shapes, and a head that search uses."""

from __future__ import annotations

import asyncio
import json
from itertools import islice

import numpy as np
import pyarrow.parquet as pq
import pytest

from rolltree.analysis.step_head import auc, fitted
from rolltree.analysis.step_rows import RowRules, dpo_rows, from_failed, looked_back, prm_rows, sft_rows
from rolltree.cli import main
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.judge.head import load_head, save_head
from rolltree.generate.judge.protocol import JudgeError
from rolltree.generate.runner import grow
from rolltree.generate.step_labels import StepLabels
from rolltree.task.protocol import Item, Verdict
from rolltree.tree import Tree
from rolltree.tree.steps import FIRST_ERROR, STEP_VALUE, steps_of
from tests.generate.modes import Right

LETTERS = Letters("?ab,!", eos_id=4)


def letters(prefix: tuple[int, ...]) -> list[float]:
    """Three letters, each a with .7 or b with .3, a comma behind each but the last."""
    at = len(prefix) - 1
    row = [1e-12] * 5
    if at >= 5:
        row[4] = 1.0
    elif at % 2:
        row[3] = 1.0
    else:
        row[1:3] = 0.7, 0.3
    return [x / sum(row) for x in row]


class AllA(Right):
    """Right where every letter is a: the first b is the first error."""

    def items(self, split, seed=0):  # type: ignore[no-untyped-def]
        return (Item(f"i{i}", "?", "aaa") for i in range(10**6))

    async def verify(self, item: Item, state: object, text: str) -> Verdict:
        return Verdict(float(text[:5] == "a,a,a"), answer=text[:5])


def labelled(search: str = "each", n: int = 6) -> list[Tree]:
    task = AllA(max_tokens=8, stop=())
    strategy = StepLabels(4, 60, ",", search)  # type: ignore[arg-type]
    items = islice(task.items("train"), n)
    return list(asyncio.run(grow(strategy, TabularEngine(letters, LETTERS), task, items, seed=1)))


def decode(ids):  # type: ignore[no-untyped-def]
    return LETTERS.decode(ids)


@pytest.mark.parametrize("search", ["each", "binary"])
def test_values_and_first_errors_are_the_exact_ones(search: str) -> None:
    checked = 0
    for tree in labelled(search):
        for leaf in (n for n in tree if FIRST_ERROR in n.notes):
            texts = [decode(s.actions.tolist())[0] for s in steps_of(tree, leaf)]
            assert leaf.notes[FIRST_ERROR] == (texts.index("b") if "b" in texts else None)
            for i, step in enumerate(steps_of(tree, leaf)[:-1]):
                if STEP_VALUE in step.scores:
                    exact = 0.0 if "b" in texts[: i + 1] else 0.7 ** (2 - i)
                    assert step.scores[STEP_VALUE] == pytest.approx(exact, abs=0.25)
                    assert (step.scores[STEP_VALUE] == 0) == (exact == 0)
                    checked += 1
    assert checked > 20


def test_rows_have_the_trainers_shapes_and_end_at_the_first_error() -> None:
    trees = labelled()
    rules = RowRules()
    for tree in trees:
        for row in prm_rows(tree, decode, rules):
            assert set(row) == {"prompt", "completions", "labels"}
            assert len(row["completions"]) == len(row["labels"])
            assert row["labels"] == ["b" not in text for text in row["completions"]]
            assert False not in row["labels"][:-1]
        for row in dpo_rows(tree, decode, rules):
            assert (row["chosen"][0], row["rejected"][0]) == ("a", "b")
            assert "b" not in row["prompt"]
        for row in sft_rows(tree, decode, rules):
            assert row["completion"][0] == "a"
    kept, failed = map(sum, zip(*(from_failed(tree, rules) for tree in trees), strict=True))
    assert 0 < failed < kept, "good steps of failed rollouts are kept"
    soft = [row for tree in trees for row in prm_rows(tree, decode, RowRules(soft=True, until_error=False))]
    assert {len(row["labels"]) for row in soft} == {3}
    merged = list(prm_rows(trees[0], decode, RowRules(merge=True)))
    assert any(row["completions"][-1].count(",") + row["completions"][-1].count("!") >= 2 for row in merged)


def test_look_back_is_the_released_one() -> None:
    """y_i = v_i − f·(y_{i−1} − v_i), in place."""
    assert looked_back([0.8, 0.4, 0.6], 0.5) == pytest.approx([0.8, 0.2, 0.8])


def test_a_head_is_fitted_saved_and_read_again(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 4))
    y = (x[:, 0] - 0.5 * x[:, 2] + 0.3 * rng.normal(size=600) > 0).astype(float)
    head = fitted(x[:400], y[:400], 1.0, "toy")
    assert (auc(head.of(x[400:]), y[400:]) or 0) > 0.95
    save_head(head, tmp_path / "h.npz")
    assert np.array_equal(load_head(tmp_path / "h.npz").of(x), head.of(x))
    (tmp_path / "no.npz").write_text("{}")
    for bad in ("no.npz", "none.npz"):
        with pytest.raises(JudgeError, match="is no step head"):
            load_head(tmp_path / bad)


def test_from_rollouts_to_rows_to_a_head_that_searches(tmp_path, capsys) -> None:  # type: ignore[no-untyped-def]
    run = tmp_path / "run"
    made = ["solve", "step_labels", "--task", "countdown", "--items", "8", "--items-from", "train", "--samples", "3"]
    assert main([*made, "--rollouts", "3", "--out", str(run)]) == 0
    assert main(["labels", str(run), "--kind", "prm", "--out", str(tmp_path / "prm.jsonl")]) == 0
    rows = [json.loads(line) for line in (tmp_path / "prm.jsonl").read_text().splitlines()]
    assert rows
    assert all(isinstance(label, bool) for row in rows for label in row["labels"])
    assert main(["labels", str(run), "--kind", "dpo", "--out", str(tmp_path / "dpo.parquet")]) == 0
    assert pq.read_table(tmp_path / "dpo.parquet").column_names == ["prompt", "chosen", "rejected"]
    head = tmp_path / "head.npz"
    assert main(["labels", str(run), "--kind", "head", "--out", str(head)]) == 0
    search = ["solve", "mcts", "--items", "2", "--turns", "3", "--rollouts", "0", "--worth", f"head:{head}"]
    assert main([*search, "--json"]) == 0
    capsys.readouterr()
    for words, said in (
        (["labels"], "which rollouts?"),
        (["labels", str(run)], "where to? give --out"),
        (["labels", str(run), "--out", str(tmp_path / "prm.jsonl")], "exists and is kept"),
        (["labels", str(run), "--out", str(tmp_path / "x.csv")], "neither .jsonl nor .parquet"),
        (["labels", str(run), "--kind", "dpo", "--margin", "2", "--out", str(tmp_path / "x.jsonl")], "give no rows"),
        (["labels", str(run), "--kind", "head", "--out", str(tmp_path / "x.bin")], "does not end in .npz"),
    ):
        assert main(words) == 2
        assert said in capsys.readouterr().err
