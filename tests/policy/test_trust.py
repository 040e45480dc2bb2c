"""Code that lies in a model's folder: not run, not asked about, and run where somebody said so."""

from __future__ import annotations

import io
import json
import shutil
import sys

import pytest

from rolltree.cli import main
from rolltree.errors import ModelError
from rolltree.policy.hub import ALLOWED
from rolltree.policy.load import load_codec, load_model
from rolltree.policy.models import model_folder

CODE = """
from pathlib import Path
from transformers import LlamaConfig, LlamaForCausalLM
Path({mark!r}).write_text("ran")
class MineConfig(LlamaConfig):
    model_type = "mine"
class MineModel(LlamaForCausalLM):
    config_class = MineConfig
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.delenv(ALLOWED, raising=False)
    # Whoever answers yes to everything is not asked.
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 99))
    place = tmp_path / "mod"
    shutil.copytree(model_folder("nano"), place)
    config = json.loads((place / "config.json").read_text())
    config |= {
        "model_type": "mine",
        "auto_map": {"AutoConfig": "mine.MineConfig", "AutoModelForCausalLM": "mine.MineModel"},
    }
    (place / "config.json").write_text(json.dumps(config))
    (place / "mine.py").write_text(CODE.format(mark=str(tmp_path / "mark")))
    return place


@pytest.mark.parametrize("load", [load_model, load_codec])
def test_code_in_a_model_folder_is_refused_in_one_sentence_that_names_the_flag(folder, load):
    with pytest.raises(ModelError, match=r"brings Python code of its own.*--trust-remote-code") as error:
        load(folder)
    assert "\n" not in str(error.value)
    assert not (folder.parent / "mark").exists()


@pytest.mark.parametrize("words", ["train grpo", "rollout grpo", "solve best_of_n", "serve", "judges"])
def test_no_verb_runs_it_or_asks(folder, words, capsys, monkeypatch):
    monkeypatch.chdir(folder.parent)
    assert main([*words.split(), "--policy", str(folder)]) == 2
    assert "--trust-remote-code" in capsys.readouterr().err
    assert not (folder.parent / "mark").exists()


def test_it_runs_where_somebody_said_so(folder, monkeypatch):
    monkeypatch.setenv(ALLOWED, "1")
    assert type(load_model(folder).model).__name__ == "MineModel"
    assert (folder.parent / "mark").exists()
