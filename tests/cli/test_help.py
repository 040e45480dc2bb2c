"""Help at 80 columns: whole words, one sentence an option, plain words for values, and nothing heavy loaded for it."""

import contextlib
import re
import subprocess
import sys
from typing import Any, cast

import pytest

from rolltree.cli import VERBS, common, main
from rolltree.cli.common import parse
from rolltree.cli.helptext import help_of, sections
from rolltree.control.registry import CONTROLS
from rolltree.credit.registry import CREDITS
from rolltree.errors import RolltreeError
from rolltree.knobs.help import COMMON
from rolltree.recipe.registry import RECIPES
from rolltree.training.config import TrainConfig

CALLS = [*VERBS, "train dapo", "train treepo --control dars", "rollout himac", "credit grpo", "credit gigpo"]
HEAVY = ("torch", "transformers", "trl", "plotly", "scipy", "ray")


def shown(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with contextlib.suppress(SystemExit):
        main([*words.split(), "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("words", ["", *CALLS])
def test_help_reads_well_at_80_columns(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(words, capsys)
    assert max(map(len, text.splitlines())) <= 80
    for bad in ("{None}", "None|", "arguments", "--no-", "recipe options", "(default: None)", "(default: )"):
        assert bad not in text, bad


@pytest.mark.parametrize("words", CALLS)
def test_every_word_of_a_sentence_stands_whole(words, capsys, monkeypatch):
    """However narrow or wide, the same words in the same order."""
    said = []
    for columns in ("60", "80", "100"):
        monkeypatch.setenv("COLUMNS", columns)
        said.append(shown(words, capsys).split())
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize("words", [words for words in CALLS if words != "bench"])
def test_every_option_of_a_verb_has_a_sentence(words, monkeypatch):
    seen = []
    monkeypatch.setattr(common, "help_of", lambda shape, *_, **kind: seen.append(list(sections(shape, **kind))) or "")
    with pytest.raises(SystemExit):
        main([*words.split(), "--help"])
    for section in seen[0]:
        for option in section.options if not section.heading.startswith("Knobs") else ():
            assert re.sub(r"\(.*?\)", "", option.about).strip().endswith("."), option


def test_the_knobs_of_a_run_have_sentences():
    for section in sections(TrainConfig, "The run"):
        assert all(option.about for option in section.options), section


def test_shared_sentences_are_of_knobs_that_exist():
    names = {name for made in RECIPES.all().values() for name in made.__dataclass_fields__}
    assert {"group", "clip", "kl", "dual", "against"} <= names & COMMON.keys()


def test_a_switch_that_is_on_takes_true_or_false():
    assert not parse(TrainConfig, ["--log-entropy", "false"], "train", "").log_entropy
    assert not parse(TrainConfig, ["--log-entropy=False"], "train", "").log_entropy
    assert parse(TrainConfig, ["--log_entropy", "true", "--steps", "3"], "train", "").log_entropy
    assert "--log-entropy {true,false}" in help_of(TrainConfig, "train", "", width=80)
    with pytest.raises(RolltreeError, match="give true or false"):
        parse(TrainConfig, ["--log-entropy", "maybe"], "train", "")


def test_help_and_lists_load_nothing_heavy():
    """Seconds of processor time before the first word are what this costs when it breaks."""
    script = f"""
import contextlib, io, sys
from rolltree.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    for words in {[*(f"{words} --help" for words in CALLS), "recipes", "tasks", "credit", "models"]!r}:
        with contextlib.suppress(SystemExit):
            main(words.split())
        found = [name for name in {HEAVY!r} if name in sys.modules]
        assert not found, (words, found)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.papers("latr")
def test_a_recipe_alone_is_loaded_where_it_is_named():
    script = """
import contextlib, io, sys
from rolltree.cli import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main(["train", "dapo", "--help"])
print(*sorted(name for name in sys.modules if name.startswith("rolltree.recipe.")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    loaded = {name.rpartition(".")[2] for name in done.stdout.split()}
    assert "dapo" in loaded, done.stderr
    assert not loaded & {"treepo", "gigpo", "latr", "mcts"}


@pytest.mark.parametrize("name", RECIPES.names())
def test_every_knob_of_a_recipe_has_a_sentence(name):
    for section in sections(RECIPES.find(name), "Knobs"):
        for option in section.options:
            assert option.about.partition(" (default: ")[0].endswith("."), option


@pytest.mark.parametrize("name", CREDITS.names())
def test_every_knob_of_a_credit_has_a_sentence(name):
    made = cast("type[Any]", CREDITS.find(name).make)
    for section in sections(made, "Knobs"):
        for option in section.options:
            assert option.about.partition(" (default: ")[0].endswith("."), option


@pytest.mark.parametrize("name", CONTROLS.names())
def test_every_knob_of_a_control_has_a_sentence(name):
    for section in sections(CONTROLS.find(name), "Knobs"):
        for option in section.options:
            assert option.about.partition(" (default: ")[0].endswith("."), option
