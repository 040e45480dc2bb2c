"""Code that means harm is run for real: it gets nothing, breaks nothing, and its end is a result like any other."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time

import psutil
import pytest

from rolltree.task.sandbox import run as running
from rolltree.task.sandbox.box import GUARANTEES, Box, SandboxError
from rolltree.task.sandbox.run import run_python, survey


def unable() -> str:
    try:
        survey()
    except SandboxError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(unable()), reason=unable())

SMALL = Box(seconds=20, cpu_seconds=1, memory=128 << 20, disk=1 << 20, output=2000)
C = "import ctypes, os\nlibc = ctypes.CDLL(None)\n"
"""Calls made past Python's own functions, as code that knows the kernel would."""
TRY = "def tried(f, *a):\n try: print('ALLOWED', f(*a))\n except OSError as e: print('refused')\nimport os\n"

REFUSED: dict[str, str] = {
    "fork": "import os\nwhile True: os.fork()",
    "process": "import subprocess; subprocess.run(['/bin/sh', '-c', 'id'])",
    "exec": "import os; os.execv('/bin/sh', ['sh'])",
    "thread": "import threading; threading.Thread(target=print).start()",
    "socket": "import socket; socket.create_connection(('127.0.0.1', 80))",
    "socket pair": "import socket; socket.socketpair()",
    "passwd": "open('/etc/passwd').read()",
    "own environment": "open('/proc/self/environ').read()",
    "first environment": "open('/proc/1/environ').read()",
    "parent's environment": "import os; open(f'/proc/{os.getppid()}/environ').read()",
    "parent's memory": "import os; open(f'/proc/{os.getppid()}/mem', 'rb')",
    "home": "import os; os.listdir('/root')",
    "root": "import os; os.listdir('/')",
    "file outside": "open('../x', 'w')",
    "device": "open('/dev/shm/x', 'w')",
    "link out": "import os; os.symlink('/etc/passwd', 'p')",
    "kill parent": "import os; os.kill(os.getppid(), 9)",
    "kill all": "import os; os.kill(-1, 9)",
    "kill group": "import os; os.killpg(os.getppid(), 9)",
    "limit of the parent": "import os, resource as r; r.prlimit(os.getppid(), r.RLIMIT_CPU, (0, 0))",
    "own limits": "import resource as r; r.setrlimit(r.RLIMIT_AS, (-1, -1))",
    "signals by a pipe": "import fcntl, os; fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid())",
    "report": "import os\nfor d in range(3, 64): os.write(d, b'{}')",
}
"""Each ends in an OSError, or Python's own error that it leads to."""
KERNEL: dict[str, tuple[str, ...]] = {
    "clone": ("syscall(56, 17, 0, 0, 0, 0)", "syscall(435, 0, 0)", "syscall(57)", "vfork()"),
    "sockets": ("socket(2, 1, 0)", "socket(16, 3, 0)", "syscall(425, 1, ctypes.create_string_buffer(120))"),
    "mounts": ("umount2(b'.', 2)", "unshare(0x10000000)", "mount(b'x', b'.', b'tmpfs', 0, None)"),
    "others": ("ptrace(16, os.getppid(), 0, 0)", "syscall(310, os.getppid(), 0, 0, 0, 0, 0)", "syscall(101, 16)"),
    "other tables": ("syscall(0x40000000 + 41, 2, 1, 0)",),
}
OTHERS: dict[str, tuple[str, str]] = {
    "endless loop": ("while True: pass", "cpu"),
    "deaf to the limit": ("import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", "killed"),
    "huge number": ("x = 7**7**9", "cpu"),
    "huge output": ("while True: print('x' * 1000)", "output"),
    "huge memory": ("x = bytearray(10**10)", "raised"),
    "growing memory": ("x = [0]\nwhile True: x += x", "raised"),
    "deep recursion": ("import sys; sys.setrecursionlimit(10**9)\nf = lambda n: [f(n + 1)]\nf(0)", "killed|raised|cpu"),
    "full disk": ("for i in range(9):\n open(str(i), 'wb').write(b'x' * 10**6)", "raised"),
    "many files": ("for i in range(10**5): open(str(i), 'w').close()", "raised"),
    "silence": ("import os; os.close(1); os.close(2)", "ok"),
    "everything closed": ("import os, sys; os.closerange(0, 99); sys.stdout.close()", "ok"),
    "early exit": ("import os; os._exit(0)", "ok"),
    "abort": ("import os; os.abort()", "killed"),
    "bytes": ("import sys; sys.stdout.buffer.write(bytes(range(256)))", "ok"),
    "no program": ("(", "raised"),
    "null": ("x = '\0'", "raised"),
    "half a character": ("x = '\ud800'", "raised"),
}


def ran(code, box=SMALL):
    return asyncio.run(run_python(code, box))


@pytest.fixture(scope="module")
def results():
    """All of them side by side, in a folder of their own that must be empty afterwards."""

    async def go():
        codes = {
            **REFUSED,
            **{k: C + "; ".join(f"print(libc.{call} < 0)" for call in v) for k, v in KERNEL.items()},
            **{k: code for k, (code, _) in OTHERS.items()},
        }
        done = await asyncio.gather(*(run_python(code, SMALL) for code in codes.values()))
        return dict(zip(codes, done, strict=True))

    before = set(psutil.Process().children(recursive=True))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", folder)
        patch.setenv("TOKEN", "secret")
        found = asyncio.run(go())
        assert os.listdir(folder) == []
    assert set(psutil.Process().children(recursive=True)) <= before, "dead ones that nobody waited for included"
    return found


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_forbidden_raises_in_the_code(results, name):
    result = results[name]
    assert result.ended == "raised", result
    assert any(
        word in result.text for word in ("Permission", "not permitted", "can't start", "not allowed to", "Bad file")
    )
    assert "root:" not in result.text


@pytest.mark.parametrize("name", KERNEL)
def test_the_kernel_itself_refuses(results, name):
    result = results[name]
    assert result.ended == "ok", result
    assert result.text.split() == ["True"] * len(KERNEL[name])


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_end_is_a_bounded_result(results, name):
    result = results[name]
    assert result.ended in OTHERS[name][1].split("|"), result
    assert len(result.text.encode(errors="replace")) <= 3 * SMALL.output
    assert bool(result.note) == (result.ended not in ("ok", "raised"))
    assert set(result.held) == set(GUARANTEES)


def test_files_of_others_stay_as_they_are(tmp_path):
    """Also by the ways that open nothing."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    victim.chmod(0o666)
    before = os.stat(victim)
    calls = (
        "open, p, 'w'", "open, p, 'r+'", "os.open, p, os.O_RDONLY | os.O_TRUNC", "os.truncate, p, 0", "os.chmod, p, 0",
        "os.utime, p, (0, 0)", "os.unlink, p", "os.rename, p, 'x'", "os.link, p, 'x'", "os.chown, p, 1, 1",
        "os.setxattr, p, 'user.x', b'y'", "os.rename, 'own', p",
    )  # fmt: skip
    result = ran(f"{TRY}open('own', 'w').close()\np = {str(victim)!r}\n" + "\n".join(f"tried({c})" for c in calls))
    assert result.text.split() == ["refused"] * len(calls), result
    assert os.stat(victim) == before  # before it is read here, which its time of access would tell
    assert victim.read_text() == "mine"


def test_it_computes_keeps_files_and_shows_a_last_value():
    result = ran("import math, json\nwith open('a', 'w') as f: f.write('7')\nprint(open('a').read())\nmath.comb(5, 2)")
    assert (result.ended, result.text, result.note) == ("ok", "7\n10\n", "")
    assert ran("import os; os.listdir()").text == "[]\n"


def test_a_traceback_shows_the_code_and_nothing_of_ours():
    text = ran("def f(x):\n    return 1 / x\nf(0)").text
    assert text.startswith('Traceback (most recent call last):\n  File "<code>", line 3')
    assert "return 1 / x" in text
    assert text.endswith("ZeroDivisionError: division by zero\n")
    assert "rolltree" not in text


def test_the_same_code_gives_the_same(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    code = "import random, os; print(random.random(), hash('x'), list({'a', 'b', 'c'}), sorted(os.environ))"
    first, second = ran(code), ran(code)
    assert first.text == second.text
    assert "TOKEN" not in first.text


def test_waiting_is_on_the_wall_clock_and_code_that_waits_is_stopped():
    result = ran("print('begun', flush=True)\nimport time; time.sleep(600)", Box(seconds=0.5))
    assert (result.ended, result.text, result.note) == ("time", "begun\n", "stopped after 0.5 s")


def test_waiting_for_a_processor_is_not_on_its_clock(monkeypatch):
    monkeypatch.setattr(running, "_in_queue", lambda pid: time.monotonic())
    result = ran("import time; time.sleep(1); print('done')", Box(seconds=0.05))
    assert (result.ended, result.text) == ("ok", "done\n")


def test_a_machine_that_gives_it_no_processor_is_our_fault_and_ends_it(monkeypatch):
    monkeypatch.setattr(running, "_in_queue", lambda pid: time.monotonic())
    monkeypatch.setattr(running, "QUEUE", 0.2)
    before = set(psutil.Process().children())
    with pytest.raises(SandboxError, match="the machine is too busy"):
        ran("import time; time.sleep(600)", Box(seconds=0.05))
    assert not set(psutil.Process().children()) - before


def test_a_cancelled_call_leaves_no_process_and_no_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def go():
        running = asyncio.ensure_future(run_python("import time; time.sleep(600)"))
        while not any(tmp_path.glob("*/scratch")):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    before = set(psutil.Process().children(recursive=True))
    asyncio.run(go())
    assert list(tmp_path.iterdir()) == []
    assert set(psutil.Process().children(recursive=True)) <= before


HEAD, _, TAIL = running.LAUNCH.rpartition("from")
FAULT = "from rolltree.task.sandbox import "


@pytest.mark.parametrize(
    ("fault", "lost", "kept"),
    [
        ("landlock; landlock.LEAST = 99", {"reads", "writes"}, {"processes", "network", "signals", "disk"}),
        ("seccomp; seccomp.ARCHITECTURES = {}", {"processes", "network"}, {"reads", "writes", "disk", "memory"}),
        ("layers; layers.NEW_USER = 1", set(), {"disk", "reads", "writes", "network"}),
        ("layers; layers.limits = lambda **_: ''", {"cpu", "memory"}, {"disk", "processes"}),
    ],
)  # fmt: skip
def test_a_guarantee_that_does_not_hold_is_refused_or_given_up_by_name(monkeypatch, fault, lost, kept):
    """Layers are broken for real in the inner process; the tests inside must notice."""
    monkeypatch.setattr(running, "LAUNCH", f"{HEAD}{FAULT}{fault}; from{TAIL}")
    if lost:
        with pytest.raises(
            SandboxError, match=f"cannot promise .*{min(lost)!r}.* on this machine .*, so the code was not"
        ):
            ran("print(1)")
    result = ran("print(1)", Box(without=frozenset(lost)))
    assert result.text == "1\n"
    assert not lost & result.held.keys()
    assert kept <= result.held.keys()


def test_without_a_file_system_of_its_own_it_writes_nothing(monkeypatch):
    monkeypatch.setattr(running, "LAUNCH", f"{HEAD}{FAULT}layers; layers.NEW_USER = 1; from{TAIL}")
    for box in (Box(), Box(disk=0)):
        assert "PermissionError" in ran("open('a', 'w')", box).text


def test_a_process_that_left_the_group_and_holds_the_output_open_is_not_waited_for(monkeypatch):
    broken = "seccomp, layers; seccomp.ARCHITECTURES = {}; layers.limits = lambda **_: ''"
    monkeypatch.setattr(running, "LAUNCH", f"{HEAD}{FAULT}{broken}; from{TAIL}")
    without = frozenset({"processes", "network", "cpu", "memory"})
    code = "import os, time\nif not os.fork():\n os.setsid()\n print(os.getpid(), flush=True)\n time.sleep(20)"
    result = ran(code, Box(seconds=1.0, without=without))
    assert result.ended == "time"
    holder = psutil.Process(int(result.text))
    assert holder.status() != psutil.STATUS_ZOMBIE
    holder.kill()


def test_an_inner_process_that_breaks_is_our_fault_and_says_so(monkeypatch):
    monkeypatch.setattr(running, "LAUNCH", "raise OSError('no interpreter')")
    with pytest.raises(SandboxError, match="broke before the code ran: OSError: no interpreter"):
        ran("1")


@pytest.mark.parametrize(
    ("knobs", "says"),
    [
        ({"seconds": 0}, "seconds=0"),
        ({"disk": -1}, "disk=-1"),
        ({"without": frozenset({"read"})}, "no guarantee 'read'"),
    ],
)
def test_senseless_boxes_are_refused(knobs, says):
    with pytest.raises(SandboxError, match=says):
        Box(**knobs)


def test_installed_packages_are_a_choice():
    assert "ModuleNotFoundError" in ran("import numpy").text
    result = ran(
        "import numpy; print(numpy.arange(4).sum())", Box(packages=True, memory=1 << 30, cpu_seconds=20, seconds=60)
    )
    assert result.text == "6\n", result
