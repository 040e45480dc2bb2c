"""Texts of others in a terminal: shown, never obeyed."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from rich.tree import Tree as Branch

from rolltree.cli import main
from rolltree.cli.common import emit, grid
from rolltree.cli.show import show_tree
from rolltree.console import Terminal
from rolltree.training.config import TrainConfig
from rolltree.training.loop import RunEvent
from rolltree.training.progress import Reporter
from rolltree.tree import Tree
from rolltree.visible import visible

HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\r\u202egnp.exe\ud800[bold red]x[/] :smile:"
STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""What rich sends for colours."""


def shown(*renderables, **options):
    sink = io.StringIO()
    console = Terminal(file=sink, width=200, force_terminal=True, color_system="truecolor")
    for each in renderables:
        console.print(each, **options)
    return sink.getvalue()


def harmless(told):
    plain = STYLE.sub("", told)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", plain)
    assert "\x1b" not in plain
    return plain


@pytest.mark.parametrize(
    "make",
    [
        str,
        Text,
        lambda text: Panel(Text(text), title=Text(text)),
        lambda text: grid("t", [{"a": text, "b": 1}]),
        lambda text: Branch(Text(text)),
        lambda text: Table(title=text),
    ],
)
def test_no_control_character_reaches_the_terminal_and_no_markup_is_read(make):
    plain = harmless(shown(make(HOSTILE)))
    if not isinstance(make(HOSTILE), Table) or make(HOSTILE).columns:
        for part in ("␛]0;owned", "␛[2J<U+009B>31m", "<U+202E>gnp.exe<U+D800>[bold red]x[/] :smile:"):
            assert part in plain


@settings(max_examples=50)
@given(st.text(st.characters(exclude_categories=())))
def test_what_is_visible_stays_so_and_plain_text_is_left_alone(text):
    once = visible(text)
    assert visible(once) == once
    once.encode()
    assert harmless(once) == once
    assert visible("plain\ttext\nin ünïcödé ∑ 漢") == "plain\ttext\nin ünïcödé ∑ 漢"


def test_trees_logs_and_errors_show_texts(tmp_path, capsys):
    tree = Tree(HOSTILE, [0])
    leaf = tree.extend(0, np.zeros(1, np.int32), status="failed")
    tree.close(leaf, "failed", "error", HOSTILE)
    sink = io.StringIO()
    show_tree(tree, lambda ids: HOSTILE, Terminal(file=sink, width=400, force_terminal=True))
    assert harmless(sink.getvalue()).count("␛]0;owned") >= 3
    with Reporter(tmp_path / "log.txt", TrainConfig()) as reporter:
        reporter(RunEvent("grown", 1, {}, (tree,)))
    assert "␛]0;owned" in harmless((tmp_path / "log.txt").read_text())
    assert main(["rollout", "grpo", "--task", HOSTILE]) == 2
    assert "owned" in harmless(capsys.readouterr().err)
    with pytest.raises(SystemExit):
        main(["tasks", "--split", HOSTILE])
    assert "owned" in harmless(capsys.readouterr().err)


def test_json_for_machines_is_plain_ascii(capsys):
    emit({"text": HOSTILE})
    told = capsys.readouterr().out
    harmless(told)
    assert json.loads(told) == {"text": HOSTILE}
