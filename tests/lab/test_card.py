"""Cards count what is planted in a forest, and say what a run folder and a foreign file can tell."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from rolltree.compare.card import CardConfig, as_json, card, main, markdown, numbers
from rolltree.compare.trace import LabError
from rolltree.training.start import train
from rolltree.tree import Tree
from rolltree.tree.store import jsonl, parquet
from tests.lab.test_train_runner import Early, model  # noqa: F401


def run(logp, sampling_logprob=None, version=3):
    n = len(logp)
    return {
        "logp": np.float32(logp),
        "sampling_logprob": np.float32(logp if sampling_logprob is None else sampling_logprob),
        "status": "done",
        "version": np.full(n, version, np.int32),
        "finish": "eos",
    }


def leaf(tree, parent, size=4, reward=1.0, **changes):
    fields = {**run([-1.0] * size), "scores": {"reward": reward}, "usage": "trained", **changes}
    return tree.extend(parent, list(range(size)), **fields)


def test_a_flat_group_of_plain_samples_departs_in_nothing():
    tree = Tree("t", [1, 2])
    for _ in range(4):
        leaf(tree, 0)
    made = numbers([tree])
    assert made.topology.kind == "group"
    assert made.topology.group.mean == 4
    assert made.topology.sharing == 1.0
    assert made.topology.branches == pytest.approx(4)
    d = made.departures
    assert (
        d.forced,
        d.tempered,
        d.unknown_distribution,
        d.foreign,
        d.replayed,
        d.stale,
        d.truncated,
        d.selected,
        d.masked,
    ) == (0,) * 9


def test_every_departure_is_counted_where_it_was_planted():
    tree = Tree("t", [1])
    hint = tree.extend(0, [7, 7], role="hint", actor="teacher", status="done")
    leaf(tree, hint, 2)
    forced = tree.extend(0, [5], forced=True, **{**run([-3.0]), "status": "open"})
    leaf(tree, forced, 3, finish="length")
    leaf(tree, 0, 4, sampling_logprob=np.float32([-0.5] * 4))
    leaf(tree, 0, 5, sampling_logprob=None)
    leaf(tree, 0, 6, actor="expert")
    leaf(tree, 0, 7, birth="graft", version=np.full(7, 1, np.int32))
    leaf(tree, 0, 8, keep=np.array([True] * 6 + [False] * 2))
    leaf(tree, 0, 9, reward=0.0, usage="dropped: no variance")
    policy = 2 + 1 + 3 + 4 + 5 + 6 + 7 + 8
    d = numbers([tree]).departures
    assert d.forced == pytest.approx((1 + 2) / (policy + 2))
    assert d.tempered == pytest.approx(4 / policy)
    assert d.tempered_mismatch == pytest.approx(4 * 0.5 / (policy - 1 - 5))
    assert d.unknown_distribution == pytest.approx(5 / policy)
    assert d.foreign == pytest.approx(6 / policy)
    assert d.replayed == pytest.approx(7 / policy)
    assert d.stale == pytest.approx(7 / policy)
    assert d.masked == pytest.approx(2 / policy)
    assert d.truncated == pytest.approx(1 / 7)
    assert d.selected == pytest.approx(1 / 8)


def test_selection_moves_outcome_and_length():
    tree = Tree("t", [1])
    leaf(tree, 0, 4, reward=1.0)
    leaf(tree, 0, 8, reward=0.0, usage="dropped: too long")
    s = numbers([tree]).selection
    assert (s.reward_all, s.reward_trained, s.length_all, s.length_trained) == (0.5, 1.0, 6.0, 4.0)


def test_trees_and_turns_are_named():
    tree = Tree("t", [1])
    stem = tree.extend(0, [2, 3, 4, 5], **{**run([-1.0] * 4), "status": "open"})
    reply = tree.extend(stem, [9], role="env", actor="tool", status="open")
    for _ in range(3):
        leaf(tree, reply, 2, birth="boundary")
    t = numbers([tree]).topology
    assert t.kind == "tree, multi-turn"
    assert t.forks == {"boundary": 1}
    assert t.sharing == pytest.approx(3 * 6 / (4 + 6))
    assert t.turns.mean == 1
    alone = Tree("u", [1])
    leaf(alone, 0)
    assert numbers([alone]).topology.kind == "linear"


def test_a_run_folder_says_what_was_set_and_counted(tmp_path, model):  # noqa: F811
    from rolltree.recipe.registry import load_recipe

    train(
        load_recipe("dapo", group=4), model, Early(), out=tmp_path / "run", steps=2, prompts=2, eval_every=0,
        forests_every=1, quiet=True,
    )  # fmt: skip
    out = io.StringIO()
    assert main(CardConfig(tmp_path / "run"), Console(file=out, width=120)) == 0
    told = json.loads((tmp_path / "run/card.json").read_text())
    assert told["steps"] == [1, 2]
    assert told["totals"]["steps"] == 2
    assert told["numbers"]["topology"]["group"]["mean"] == 4
    page = (tmp_path / "run/card.md").read_text()
    assert "Mixed(" in page
    assert "2503.14476" in page
    assert "early (level 0)" in page
    assert "Generate" in out.getvalue()


def test_forests_of_other_programs_get_a_card(tmp_path):
    tree = Tree("t", [1])
    for reward in (0.0, 1.0):
        tree.extend(0, [1, 2], logp=np.float32([-1, -1]), status="done", scores={"reward": reward})
    jsonl.write([tree], tmp_path / "nodes.jsonl")
    parquet.save([tree], tmp_path / "forest")
    for path in (tmp_path / "nodes.jsonl", tmp_path / "forest"):
        made = card(path)
        assert made.numbers.topology.leaves == 2
        assert made.numbers.departures.unknown_distribution == 1.0
        assert made.numbers.fates == {"done, usage not recorded": 2}
        assert "not recorded" in markdown(made)
        assert as_json(made)["settings"] is None


def test_files_in_one_folder_have_a_card_each(tmp_path):
    for name in ("one", "two"):
        tree = Tree(name, [1])
        leaf(tree, 0)
        jsonl.write([tree], tmp_path / f"{name}.jsonl")
        main(CardConfig(tmp_path / f"{name}.jsonl", json=True))
    assert [json.loads((tmp_path / f"{name}.card.json").read_text())["source"] for name in ("one", "two")] == [
        "one.jsonl", "two.jsonl",
    ]  # fmt: skip
    assert (tmp_path / "one.card.md").is_file()


def test_text_of_a_run_stays_text(tmp_path):
    tree = Tree("t", [1])
    leaf(tree, 0, usage="dropped: <script>|x|\n# y")
    jsonl.write([tree], tmp_path / "nodes.jsonl")
    page = markdown(card(tmp_path / "nodes.jsonl"))
    assert "<script>" not in page
    assert "\\|x\\| # y" in page


@pytest.mark.parametrize("made", ["nothing", "empty", "broken"])
def test_what_is_no_run_is_named(tmp_path, made):
    path = tmp_path / "run"
    if made == "empty":
        path.mkdir()
        (path / "config.json").write_text("{}")
    elif made == "broken":
        path.mkdir()
        (path / "config.json").write_text("{")
    with pytest.raises(LabError, match=str(path)):
        card(path)


def test_settings_that_are_none_are_named(tmp_path):
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(LabError, match="holds no settings of a run"):
        card(tmp_path)
