"""Texts that mean harm against the judge that evaluates them: each is wrong by itself, and no other is touched."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import warnings
from pathlib import Path

import psutil
import pytest

from rolltree.task import judge as judging
from rolltree.task import math_judge
from rolltree.task.judge import Bench, JudgeProcess, JudgeProcessError, OpenJudgeWarning, warn_where_open
from rolltree.task.sandbox.box import GUARANTEES, Box
from rolltree.task.sandbox.run import survey
from rolltree.task.zygote import AT_ONCE, Bounds, _late

KNOWS = "next(f['word'] for k in range(7) if 'word' in (f := __import__('sys')._getframe(k).f_locals))"
"""The word that makes an answer count, as a text finds it in its own process."""
SMALL = Bounds(seconds=1, wall=120.0, memory=1 << 30, said=1 << 16)
"""The wall clock is no part of what is tested here: it ends what hangs."""
OS = "__import__('os')"
ATTACKS = {
    "leaves": "exit()",
    "leaves without a word": f"{OS}._exit(0)",
    "says it failed": f"{OS}._exit(7)",
    "crashes": "__import__('ctypes').string_at(0)",
    "computes": "9**9**9**9",
    "is deaf and computes": "[__import__('signal').signal(24, 1)] and [0 for _ in iter(int, 1)]",
    "is interrupted": "(_ for _ in ()).throw(KeyboardInterrupt)",
    "takes memory": "bytearray(1 << 40)",
    "forges an answer and leaves": f"""{OS}.write(3, b'{{"told": 1}}\\n') and {OS}._exit(0)""",
    "answers for all": f"""[{OS}.write(3, b'%d {{"told": 1}}\\n' % n) for n in range(99)]""",
    "streams": f"[{OS}.write(3, b'x' * 4096) for _ in iter(int, 1)]",
    "says too much": "'x' * (1 << 20)",
    "knows the word and nests deeply": f"{OS}.write(3, {KNOWS} + b' ' + b'[' * 60000 + b'\\n') and {OS}._exit(0)",
}
"""What a text may do beside answering; each is a fault of its own."""
IDLE = {
    "stops itself": f"{OS}.kill({OS}.getpid(), 19)",
    "sleeps": "__import__('time').sleep(600)",
    "closes and waits": f"{OS}.close(3) or __import__('time').sleep(600)",
}
"""What uses no processor time and never ends: nothing tells it from an honest text on a machine that is busy."""
BUSY = {**IDLE, "has too little of a processor": "[0 for _ in iter(int, 1)]"}
HARMLESS = {
    "replaces the scorer": "__import__('tests.task.evaluator').task.evaluator.GLOBAL.update(answer=lambda t: 'mine')",
    "replaces eval": "__builtins__.update(eval=lambda t: 'mine') if isinstance(__builtins__, dict) else 0",
    "replaces json": "setattr(__import__('json'), 'loads', lambda t: 'mine')",
}
"""What changes things in its own process, which ends with it."""


@pytest.fixture(scope="module")
def bench():
    made = Bench("tests.task.evaluator", SMALL)
    yield made
    made.judge().close()


def ask(bench, *texts):
    async def all_of_them():
        return await asyncio.gather(*(bench.ask(text.encode()) for text in texts), return_exceptions=True)

    return asyncio.run(all_of_them())


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_its_own_fault(bench, name):
    before = bench.judge().process.pid
    (judged,) = ask(bench, ATTACKS[name])
    assert judged.told is None
    assert judged.fault.startswith("judging it ")
    assert bench.judge().process.pid == before
    assert ask(bench, "6 * 7")[0].told == 42


@pytest.mark.parametrize("name", BUSY)
def test_a_wall_clock_that_runs_out_is_a_crash_and_never_a_fault(name):
    bench = Bench("tests.task.evaluator", Bounds(seconds=60, wall=0.5))
    (judged,) = ask(bench, BUSY[name])
    assert isinstance(judged, JudgeProcessError)
    assert "not over after 0.5 s" in str(judged)
    judge = bench.judge()
    assert psutil.Process(judge.process.pid).children(recursive=True) == []
    judge.close()


@pytest.mark.parametrize(("computed", "at_fault"), [(0.0, False), (4.9, False), (5.0, True), (6.0, True)])
def test_a_text_that_had_its_processor_time_is_at_fault_also_where_the_wall_clock_ends_it(computed, at_fault):
    told = _late(computed, Bounds(seconds=5))
    assert [*told] == ["fault" if at_fault else "crashed"]


def test_a_mathematical_answer_that_the_machine_had_no_time_for_fails_and_is_not_wrong(monkeypatch):
    pytest.importorskip("math_verify")
    bench = Bench("rolltree.task.math_judge", Bounds(seconds=60, wall=0.3))
    monkeypatch.setattr(math_judge, "_bench", bench)
    with pytest.raises(JudgeProcessError, match="too busy to judge"):
        asyncio.run(math_judge.judge_math("1", r"$9^{9^{9^{9}}}$"))
    bench.judge().close()


@pytest.mark.parametrize("name", HARMLESS)
def test_what_a_text_changes_is_gone_with_it(bench, name):
    ask(bench, HARMLESS[name])
    assert ask(bench, "6 * 7", "'a' + 'b'") == [judging.ProcessVerdict(42), judging.ProcessVerdict("ab")]


def test_no_depth_of_an_answer_ends_the_judge(bench):
    before = bench.judge().process.pid
    for depth in range(940, 1001, 4):
        nested = f"b'{{\"told\": ' + b'[' * {depth} + b']' * {depth} + b'}}\\n'"
        (judged,) = ask(bench, f"{OS}.write(3, {KNOWS} + b' ' + {nested}) and {OS}._exit(0)")
        assert judged.told or judged.fault
    assert bench.judge().process.pid == before


def test_every_honest_text_among_attacks_gets_its_own_answer(bench):
    rng = random.Random(20)
    bad = [*ATTACKS.values()]
    texts = [f"{n} + 1" if rng.random() < 0.6 else rng.choice([*bad, *HARMLESS.values()]) for n in range(3 * AT_ONCE)]
    for n, (text, judged) in enumerate(zip(texts, ask(bench, *texts), strict=True)):
        assert text != f"{n} + 1" or judged == judging.ProcessVerdict(n + 1)
        assert text not in bad or judged.fault
    process = psutil.Process(bench.judge().process.pid)
    assert process.children(recursive=True) == []


def test_an_exception_in_judging_is_a_crash(bench):
    (judged,) = ask(bench, "1 / 0")
    assert isinstance(judged, JudgeProcessError)
    assert str(judged) == "ZeroDivisionError: division by zero"


def test_a_text_whose_process_is_killed_from_outside_is_a_crash_and_no_fault(bench):
    (judged,) = ask(bench, f"{OS}.kill({OS}.getpid(), 9)")
    assert isinstance(judged, JudgeProcessError)


def test_a_text_reaches_nothing(bench, tmp_path):
    held = survey(Box(without=frozenset(GUARANTEES)))
    if not set(judging.NEEDED) <= held.keys():
        pytest.skip("this machine lacks Landlock or seccomp, and the task says so")
    place = tmp_path / "reached"
    for text in (f"open({str(place)!r}, 'w')", "open('/etc/passwd').read()", f"{OS}.fork()",
                 "__import__('socket').socket()", f"{OS}.kill({OS}.getppid(), 0)"):  # fmt: skip
        (judged,) = ask(bench, text)
        assert isinstance(judged, JudgeProcessError)
        assert "PermissionError" in str(judged)
    assert not place.exists()


def test_a_judge_that_is_killed_gives_up_what_it_was_asked_and_is_started_again(bench):
    async def main():
        waiting = asyncio.ensure_future(bench.ask(b"__import__('time').sleep(600)"))
        assert (await bench.ask(b"1")).told == 1
        bench.judge().process.kill()
        with pytest.raises(JudgeProcessError, match="ended with -9"):
            await waiting
        assert (await bench.ask(b"2")).told == 2

    asyncio.run(main())


def test_nothing_survives_the_program():
    """Killed without a warning, it leaves neither the judge nor a text behind."""
    root = Path(__file__).resolve().parents[2]
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.task.evaluator"], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    left = [psutil.Process(int(pid)) for pid in program.stdout.readline().split()]
    program.kill()
    program.wait()
    assert len(left) == 2
    _, alive = psutil.wait_procs(left, timeout=300)
    assert alive == []


def test_questions_of_any_size_and_sign_come_back_whole():
    judge = JudgeProcess("tests.task.evaluator", SMALL)
    text = "é\ud800" * 5000
    assert judge.put(json.dumps(text).encode()).result(300).told == text
    judge.close()
    with pytest.raises(JudgeProcessError):
        judge.put(b"1").result(300)


def test_a_machine_without_the_layers_is_named_at_the_start_of_a_task(monkeypatch):
    warn_where_open.cache_clear()
    monkeypatch.setattr(judging, "survey", lambda box: {"memory": "limits", "network": "seccomp"})
    with pytest.warns(OpenJudgeWarning, match="it starts no process.*it changes no file.*lacks Landlock"):
        warn_where_open()
    warn_where_open.cache_clear()
    monkeypatch.setattr(judging, "survey", lambda box: dict.fromkeys(GUARANTEES, "a layer"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_where_open()
    warn_where_open.cache_clear()
