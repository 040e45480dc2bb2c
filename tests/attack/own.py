"""Files of one's own that fail in odd ways, and Ctrl-C in the first seconds of a command."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.attack.frame import Attack, BrokenPromiseError
from tests.attack.inputs import SMALL, answered

ROOT = Path(__file__).parents[2]
USES = (
    "train own.py:mine --task arithmetic",
    "train grpo --task own.py:mine",
    "train grpo --task items.jsonl --reward own.py:mine",
    "train grpo --task items.jsonl --reward exact --tool own.py:mine",
    "train grpo --task arithmetic --agent own.py:mine",
    "train grpo --task trl:own.py:mine",
    "train grpo --task arithmetic --control own.py:mine",
    "rollout own.py:mine --task arithmetic",
    "recipes own.py:mine",
    "tasks own.py:mine",
)
KINDS = (
    "ValueError('a\\n\\nb')", "KeyError", "AssertionError", "RuntimeError('💥 \\x1b[31m')", "OSError(5, 'so')",
    "ImportError", "ImportError('x\\ny')", "SyntaxError", "SyntaxError('so')", "StopIteration",
    "UnicodeDecodeError('utf-8', b'x', 0, 1, 'so')",
    "GeneratorExit", "SystemExit('so')", "RecursionError", "MemoryError", "ExceptionGroup('a', [KeyError(1)])", "Odd",
)  # fmt: skip
ODD = "class Odd(Exception):\n def __str__(self): raise ValueError('no words')\n"
BODIES = (
    "raise {kind}\n",
    "def f(): raise {kind}\nf()\n",
    "try:\n 1 / 0\nexcept ZeroDivisionError:\n raise {kind}\n",
    "def mine(a: 'Nope['): raise {kind}\n",
    "def mine(completions, **k): raise {kind}\n",
    "mine = 3\n",
    "class mine:\n def __init__(self): raise {kind}\n",
    "def __getattr__(name): raise {kind}\n",
    "def f(:\n",
    "\x00",
    "mine = property(lambda self: 1)\n",
)


def own_files(rng: random.Random, place: Path) -> str:
    """A file that fails when it is imported, or holds something else than what is asked for."""
    text = ODD + rng.choice(BODIES).format(kind=rng.choice(KINDS))
    (place / "own.py").write_text(text)
    (place / "items.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n{"question": "1+2=", "answer": "3"}\n')
    words: list[str] = [*rng.choice(USES).split()]
    if words[0] == "train":
        words = [*words, *SMALL.split()]
    try:
        return answered(words, place)
    except BrokenPromiseError as broken:
        raise BrokenPromiseError(f"{broken} with {text!r}") from broken


def early(rng: random.Random, place: Path) -> str:
    """Ctrl-C once or twice while a command begins: no traceback of ours, and it ends."""
    command = [
        sys.executable,
        "-m",
        "rolltree",
        *rng.choice(("recipes", "tasks --json", "train grpo --out run")).split(),
    ]
    process = subprocess.Popen(
        command, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - as in a terminal
    )  # fmt: skip
    for _ in range(rng.choice((1, 2))):
        time.sleep(rng.uniform(0, 1))
        process.send_signal(signal.SIGINT)
    try:
        _, said = process.communicate(timeout=180)
    except subprocess.TimeoutExpired:
        process.kill()
        raise BrokenPromiseError(f"{command} goes on after Ctrl-C: {process.communicate()[1][-300:]!r}") from None
    if "Traceback" in said and "rolltree/cli" in said:
        raise BrokenPromiseError(f"{command} ended in a traceback: {said[-600:]}")
    return "ended" if process.returncode else "was done before"


ATTACKS = (
    Attack("own-files", "files of one's own that fail in odd ways", own_files, 8, 300),
    Attack("early-signals", "Ctrl-C in the first seconds of a command", early, 2, 60),
)
