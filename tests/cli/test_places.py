"""A place that takes nothing is said in one sentence before any work, by every verb that writes a file or a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rolltree.cli import main
from rolltree.compare.train_runner import TrainRunner
from rolltree.engine import choose
from rolltree.training import start
from rolltree.tree.store.atomic import check_writable
from rolltree.tree.store.values import StoreError

NODES = (
    '{"tree":"a","id":0,"role":"prompt","actions":[1,2]}\n'
    '{"tree":"a","id":1,"parent":0,"role":"policy","actions":[3],"logp":[-1.0],"scores":{"reward":1.0}}\n'
)
VERBS = {
    "serve": ["serve", "--port", "0", "--out"],
    "serve, searches": ["serve", "--port", "0", "--strategy", "best_of_n", "--searches"],
    "rollout": ["rollout", "grpo", "--out"],
    "rollout, nodes": ["rollout", "grpo", "--jsonl"],
    "solve": ["solve", "best_of_n", "--items", "1", "--out"],
    "train": ["train", "grpo", "--task", "countdown", "--out"],
    "compare": ["compare", "grpo", "rloo", "--out"],
    "compare, cache": ["compare", "grpo", "rloo", "--out", "fine", "--cache"],
    "demo": ["demo", "--json", "--out"],
    "evidence": ["evidence", "ace", "--folder"],
    "evidence, cache": ["evidence", "ace", "--folder", "fine", "--cache"],
    "evidence, confirmed": ["evidence", "ace", "--confirm", "--folder"],
    "credit": ["credit", "grpo", "nodes.jsonl", "--out"],
    "doctor": ["doctor", "nodes.jsonl", "--out"],
    "labels": ["labels", "nodes.jsonl", "--model", "nano", "--out"],
    "view": ["view", "nodes.jsonl", "--html"],
    "card": ["card", "nodes.jsonl", "--out"],
    "budget": ["budget", "nodes.jsonl", "--out"],
}
PLACES = {"a file for a folder": "file/below.jsonl", "no such system": "/proc/nobody/below.jsonl"}


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What takes long only notes that it was begun."""
    work: list[str] = []

    def noted(name: str) -> object:
        def begin(*_: object, **__: object) -> object:
            work.append(name)
            raise AssertionError(f"{name} was begun")

        return begin

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(choose, "choose_engine", noted("an engine"))
    monkeypatch.setattr(TrainRunner, "__call__", noted("a run"), raising=False)
    monkeypatch.setattr(start, "load_model", noted("a model"), raising=False)
    (tmp_path / "nodes.jsonl").write_text(NODES)
    (tmp_path / "file").write_text("kept")
    return work


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("command", VERBS.values(), ids=VERBS)
def test_it_is_refused_in_one_sentence_before_any_work(
    begun: list[str], capsys: pytest.CaptureFixture[str], command: Sequence[str], place: str
) -> None:
    assert main([*command, place]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1, said.err
    assert place.split("/")[-2] in said.err
    assert "give another" in said.err
    assert not begun
    assert Path("file").read_text() == "kept"


def test_a_look_leaves_nothing_and_sees_what_only_the_system_knows(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b" / "c.jsonl")
    check_writable(tmp_path / "a" / "b", folder=True)
    (tmp_path / "there").write_text("x")
    check_writable(tmp_path / "there")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("there", "x")]
    with pytest.raises(StoreError, match=r"--out .* cannot be written \(File name too long\); give another place"):
        check_writable(tmp_path / ("a" * 250))
    with pytest.raises(StoreError, match=r"--html .* is a folder; give a file's name"):
        check_writable(tmp_path, "--html")
    with pytest.raises(StoreError, match=r"cannot be written \((File exists|Not a directory)\)"):
        check_writable(tmp_path / "there", folder=True)
