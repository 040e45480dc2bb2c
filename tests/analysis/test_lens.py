"""Credits side by side: exact advantages, and flips exactly where two of them disagree about the sign."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rolltree.analysis.lens import lens
from rolltree.analysis.prefix import AnalysisError
from rolltree.cli import main
from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.tree import Forest, Tree
from rolltree.tree.store import jsonl
from rolltree.tree.table import table
from tests.analysis.exact import flat_tree, leaf


def uneven() -> Tree:
    """A wrong branch among better siblings that is better than the tree: the group says up, its fork says down."""
    tree = Tree("t", [1])
    good, bad = tree.extend(0, [5, 6]), tree.extend(0, [7])
    for token, reward in ((10, 1.0), (11, 1.0), (12, 0.7)):
        leaf(tree, good, [token], reward)
    for token in (20, 21, 22):
        leaf(tree, bad, [token], 0.0)
    return tree


def test_a_credit_that_compares_siblings_flips_what_the_group_praises():
    tree = uneven()
    made = lens([tree], {name: load_credit(name) for name in ("dr_grpo", "sibling")})
    by_token = {
        int(a): made.advantage[:, i]
        for i, a in enumerate(np.concatenate([n.actions for n in made.table.nodes])) if a >= 5
    }  # fmt: skip
    mean = 2.7 / 6
    assert by_token[12] == pytest.approx([0.7 - mean, 0.7 - 0.9])
    assert by_token[10] == pytest.approx([1 - mean, 0.1])
    assert by_token[5] == pytest.approx([0.9 - mean, 0.45])
    flipped = [int(made.table.nodes[row].actions[0]) for row in made.rows()]
    assert flipped == [12]
    assert (int(made.flips.sum()), made.flipped(0, 1)) == (1, 1)


def test_each_row_is_what_the_credit_alone_computes_and_the_trees_stay_as_they_are():
    trees = [flat_tree(np.random.default_rng(s), 16) for s in (1, 2)]
    trees[1].id = "other"
    names = ("grpo", "rloo", "sibling")
    made = lens(trees, {n: load_credit(n) for n in names})
    view = table(trees)
    for i, name in enumerate(names):
        advantage = load_credit(name)(view)
        alone = fold(view, advantage, leaf_weights(view, "sequence", counted=advantage.counted))
        used = alone.weight > 0
        assert made.advantage[i][used] == pytest.approx((alone.gain[used] + alone.loss[used]) / alone.weight[used])
        assert np.isnan(made.advantage[i][~used]).all()
    assert all(n.gain is None for t in trees for n in t)
    assert made.alike(0, 0) == pytest.approx(1)


def test_fewer_than_two_credits_are_refused():
    with pytest.raises(AnalysisError, match="at least two"):
        lens([uneven()], {"grpo": load_credit("grpo")})


def test_the_command_says_how_many_signs_flip(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jsonl.write(Forest([uneven()]), tmp_path / "nodes.jsonl")
    assert main(["credit", "dr_grpo", "sibling", "nodes.jsonl", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["flipped"], said["pairs"][0]["flipped"]) == (1, 1)
    assert said["nodes"][0]["advantage"] == {"dr_grpo": pytest.approx(0.25), "sibling": pytest.approx(-0.2)}
    assert main(["credit", "dr_grpo", "sibling", "nodes.jsonl"]) == 0
    assert "1 of 9 taught tokens change sign" in capsys.readouterr().out
    for words in ("dr_grpo siblin nodes.jsonl", "dr_grpo dr_grpo nodes.jsonl", "dr_grpo gigpo nodes.jsonl",
                  "dr_grpo sibling gone.jsonl"):  # fmt: skip
        assert main(["credit", *words.split()]) == 2
        assert capsys.readouterr().err.count("\n") == 1
