"""Python as a tool: what the policy sees, what counts as its answer, and that nothing it calls loses a rollout."""

from __future__ import annotations

import asyncio
import json
import re
import string
from itertools import islice

import pytest

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.setting import Patience
from rolltree.task.registry import load_task
from rolltree.task.sandbox import run as running
from rolltree.task.sandbox.box import Box, SandboxError
from rolltree.task.sandbox.run import survey
from rolltree.testing import task as contract

pytest.importorskip("math_verify")
CODEC = Letters(string.printable + "\x00", eos_id=len(string.printable))


def able() -> bool:
    try:
        return bool(survey(Box()))
    except SandboxError:
        return False


pytestmark = pytest.mark.skipif(not able(), reason="this machine cannot hold all guarantees")


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "q.jsonl"
    rows = [{"prompt": f"What is 6 times {n}?", "answer": str(6 * n), "split": "train"} for n in (7, 8)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return load_task(f"python:{path}", instructions="\n", seconds=20)


def block(code):
    return f"```python\n{code}\n```\n"


def scripted(*turns):
    """An engine that writes these turns one after the other, whatever it is answered, and then ends."""

    def row(prefix):
        rest = CODEC.decode(prefix).partition("?\n")[2]
        for turn in turns:
            if not rest.startswith(turn):
                return one_hot(CODEC.alphabet.index(turn[len(rest)]))
            rest = re.sub(r"\A```output\n.*?\n```\n", "", rest[len(turn) :], count=1, flags=re.DOTALL)
        return one_hot(CODEC.eos_id)

    return TabularEngine(row, CODEC)


def one_hot(at):
    return [float(i == at) for i in range(CODEC.vocab_size)]


def rollout(task, *turns, n=1, **options):
    items = islice(task.items("train"), n)
    return asyncio.run(grow(Independent(1), scripted(*turns), task, items, **options))


def test_a_block_is_run_its_output_is_seen_and_the_answer_after_it_counts(task):
    item = next(task.items("train"))
    factor = item.prompt[16]
    forest = rollout(task, "Let me see.\n" + block(f"print(6*{factor})"), f"So \\boxed{{{item.answer}}}")
    (tree,) = forest
    (leaf,) = tree.leaves()
    answer = next(n for n in tree if n.role == "env")
    assert CODEC.decode(answer.actions) == f"```output\n{item.answer}\n```\n"
    assert (leaf.scores["reward"], leaf.scores["calls"], leaf.notes["answer"]) == (1.0, 1.0, item.answer)


def test_what_the_tool_printed_is_no_answer(task):
    (tree,) = rollout(task, block("print(42)"), "I do not know")
    assert tree.leaves()[0].scores["reward"] == 0.0
    assert tree.leaves()[0].notes["answer"] is None


HARM = {
    "loop": "while True: pass", "fork": "import os\nwhile True: os.fork()", "output": "while True: print('x' * 999)",
    "kill": "import os; os.kill(os.getppid(), 9)", "silent": "import os; os.close(1)", "wrong": "1 / 0",
    "exit": "import os; os._exit(1)", "quoted": "print('a ``` b')",
}  # fmt: skip


def test_whatever_a_block_does_the_rollout_goes_on_and_is_judged(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"prompt": "What is 1+1?", "answer": "2", "split": "train"}))
    task = load_task(f"python:{path}", instructions="\n", seconds=1, shown=80)

    async def go():
        return await asyncio.gather(
            *(grow(Independent(1), scripted(block(code), "So \\boxed{2}"), task, islice(task.items("train"), 1))
              for code in HARM.values())
        )  # fmt: skip

    for name, forest in zip(HARM, asyncio.run(go()), strict=True):
        (tree,) = forest
        (leaf,) = tree.leaves()
        reply = next(n for n in tree if n.role == "env")
        assert (leaf.status, leaf.scores.get("reward")) == ("done", 1.0), (name, tree.events[-1])
        assert bool(reply.notes.get("failed")) == (name not in ("silent", "quoted")), name
        assert len(reply) <= 80 + len("```output\n\n..\n\n```\n"), name


def test_a_broken_sandbox_fails_the_node_and_is_no_zero(task, monkeypatch):
    monkeypatch.setattr(running, "LAUNCH", "raise OSError('gone')")
    (tree,) = rollout(task, block("1"), "So \\boxed{2}", patience=Patience(tries=1))
    (leaf,) = tree.leaves()
    assert (leaf.status, leaf.role, "reward" in leaf.scores) == ("failed", "env", False)
    assert "SandboxError: the sandbox broke before the code ran: OSError: gone" in tree.events[-1].why


def test_it_is_a_sound_task(task):
    item = next(task.items("train"))
    script = [block("print('a' * 2000)"), "```\nno python\n```\n", f"\\boxed{{{item.answer}}}"]
    contract.check_task(task)
    asyncio.run(contract.check_functional(task, item, script))
    replies, state, _ = asyncio.run(contract.perform(task, item, script[:2]))
    assert [r.failed for r in replies] == [False, True]
    assert len(replies[0].text) < 600
    assert "\n..\n" in replies[0].text
    assert state.calls == 2


def test_instructions_follow_the_prompt_and_the_guarantees_are_on_show(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"prompt": "p", "answer": "2", "split": "train"}))
    task = load_task(f"python:{path}")
    assert next(task.items("train")).prompt.startswith("p\nYou may use Python")
    assert task.guarantees["processes"] == "seccomp"
