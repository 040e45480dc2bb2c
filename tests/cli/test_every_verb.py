"""Every verb without options does what it does by default, or says in one line what it wants."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from rolltree.cli import VERBS, demo, main, placed
from rolltree.training import start

CALLS = {
    **{verb: [verb] for verb in VERBS if verb != "serve"},  # it serves until somebody stops it
    "train a recipe": ["train", "grpo"],
    "grow a recipe": ["rollout", "grpo"],
}


@pytest.fixture
def light(monkeypatch, tmp_path):
    """What takes minutes is replaced by what records that it was begun."""
    begun = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "main", lambda asked: begun.append(asked) or 0)
    monkeypatch.setattr(start, "train", lambda *a, **k: begun.append(k) or start.Result(Path("x"), None, [], "it is"))
    monkeypatch.setattr(subprocess, "run", lambda *a, **k: begun.append(a) or SimpleNamespace(returncode=0))
    return begun


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_verb_with_no_options_does_its_default_or_explains(call, light, capsys):
    code = main(call)
    said = capsys.readouterr()
    if code == 0:
        assert said.out
        assert said.err == ""
        assert bool(light) == (call in (["demo"], ["bench"], ["train", "grpo"]))
    else:
        assert (code, said.out) == (2, "")
        assert said.err.startswith("rolltree: ")
        assert said.err.count("\n") == 1
        assert f"rolltree {call[0]}" in said.err or "--" in said.err


def test_a_cluster_without_a_size_has_two_engines():
    assert placed.complete([]) == []
    assert placed.complete(["--cluster"]) == ["--cluster=local:2"]
    assert placed.complete(["--cluster", "--seed", "1"]) == ["--cluster=local:2", "--seed", "1"]
    assert placed.complete(["--cluster", "auto"]) == ["--cluster", "auto"]
