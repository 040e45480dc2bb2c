"""Files of one's own that fail in odd ways: each is one sentence with the file, and the program does not leave."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from rolltree.cli import main

SMALL = shlex.split("--steps 1 --prompts 1 --group 2 --eval-every 0 --max-tokens 4 --threads 1 --doctor 0 --out run")
RAISES = {
    "an error": ("x = 1\n1 / 0\n", "ZeroDivisionError: division by zero (own.py line 2)"),
    "an error without words": ("raise KeyError\n", "KeyError (own.py line 1)"),
    "many lines": ("raise ValueError('one\\n two\\n\\n three')\n", "ValueError: one two three (own.py line 1)"),
    "an end": ("import sys\nsys.exit(3)\n", "leaves the program when it is imported"),
    "an end of a generator": ("raise GeneratorExit\n", "GeneratorExit (own.py line 1)"),
    "no Python": ("def f(:\n", "invalid syntax (own.py, line 1)"),
    "a missing module": ("import nosuchmodule\n", "No module named 'nosuchmodule'"),
    "an assertion": ("assert False, 'so'\n", "AssertionError: so (own.py line 1)"),
}
USES = {
    "recipe": "train own.py:Mine --task arithmetic",
    "task": "train grpo --task own.py:Mine",
    "reward": "train grpo --task items.jsonl --reward own.py:mine",
    "tool": "train grpo --task items.jsonl --reward exact --tool own.py:mine",
    "agent": "train grpo --task arithmetic --agent own.py:mine",
}
RECIPE = """
from __future__ import annotations
from dataclasses import dataclass
from rolltree.recipe.grpo import Grpo
@dataclass(frozen=True)
class Mine(Grpo):
    twice: "Nope[" = 1
"""
TOOL = '''
def mine(a: "Nope[") -> str:
    """Say a word."""
    return "x"
'''


def said(capsys: pytest.CaptureFixture[str], words: str) -> str:
    """What is said of a command that is refused: one line."""
    assert main([*shlex.split(words), *SMALL]) == 2
    text = capsys.readouterr().err
    assert text.startswith("rolltree: ")
    assert text.count("\n") == 1, text
    return text


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rows = [{"question": f"{n}+1=", "answer": str(n + 1)} for n in range(8)]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", RAISES)
def test_a_file_that_fails_when_it_is_imported_is_a_sentence_with_its_line(
    here: Path, capsys: pytest.CaptureFixture[str], use: str, name: str
) -> None:
    code, says = RAISES[name]
    (here / "own.py").write_text(code)
    text = said(capsys, USES[use])
    assert "own.py" in text
    assert says in text


@pytest.mark.parametrize("use", ["task", "agent"])
def test_a_file_that_leaves_when_it_is_asked_for_a_name_is_a_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], use: str
) -> None:
    (here / "own.py").write_text("def __getattr__(name): raise SystemExit('so')\n")
    assert "own.py" in said(capsys, USES[use])


@pytest.mark.parametrize("error", ["ImportError('x\\ny')", "SyntaxError", "StopIteration", "ValueError('a\\n\\nb')"])
def test_an_agent_that_fails_before_it_asks_is_a_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], error: str
) -> None:
    (here / "own.py").write_text(f"def mine(item): raise {error}\n")
    assert "the agent fails before it asks the policy anything" in said(capsys, USES["agent"])


@pytest.mark.parametrize(("use", "code"), [("recipe", RECIPE), ("tool", TOOL)])
def test_an_annotation_that_is_no_type_is_a_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], use: str, code: str
) -> None:
    (here / "own.py").write_text(code)
    text = said(capsys, USES[use])
    assert "mend" in text
    assert "annotations" in text


@pytest.mark.parametrize("kind", ["", "async "])
def test_a_reward_that_ends_the_process_fails_its_rollout_and_not_the_program(
    here: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    code = f"import os\ndone = []\n{kind}def mine(completions, **k):\n done.append(1)\n"
    (here / "own.py").write_text(f"{code} if len(done) > 1: os._exit(0)\n return [1.0]\n")
    assert main([*shlex.split(USES["reward"]), *SMALL]) == 2
    text = capsys.readouterr().err.splitlines()[-1]
    assert "rollouts failed" in text
    assert "SystemExit: 0 (own.py line 5)" in text


def test_a_process_that_a_reward_forks_may_leave(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = "import os\ndef mine(completions, **k):\n child = os.fork()\n if not child: os._exit(7)\n"
    code += " return [float(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))]\n"
    (here / "own.py").write_text(code)
    assert main([*shlex.split(USES["reward"]), *SMALL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["train"]["reward/mean"] == 7.0


def test_more_ranks_than_a_machine_can_hold_are_refused_before_any_begins(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "ranks=9999 are too many for the" in said(capsys, "train grpo --task arithmetic --ranks 9999")
    assert not (here / "run").exists()
