"""What a sandboxed agent tries against the host, against other rollouts and against the answers: none of it works."""

import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from rolltree.gateway.agents import limits, opened
from rolltree.gateway.agents.limits import AgentLimits, check_sandbox
from rolltree.task.items import TaskError
from rolltree.task.registry import load_task
from rolltree.task.sandbox.held_back import hold_back


def unable():
    try:
        check_sandbox()
    except TaskError as error:
        return str(error)
    return ""


pytestmark = pytest.mark.skipif(bool(unable()), reason=unable())

TRIED = """
import ctypes, json, os, socket, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
told = {}
def tried(name, work):
    try:
        got = work()
        told[name] = "refused" if isinstance(got, int) and got < 0 else f"{got!r:.200}"
    except (OSError, MemoryError) as error:
        told[name] = "refused"
"""


def run(words, port=1, **limits):
    """A command in the sandbox: its exit code, what it printed and what it complained of."""
    with tempfile.TemporaryDirectory() as scratch:
        made = AgentLimits(sandbox=True, **limits)
        command = made.command([str(word) for word in words], scratch, port)
        ran = subprocess.run(
            command, cwd=scratch, env=made.environment({}, scratch), capture_output=True, text=True, timeout=120,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    return ran.returncode, ran.stdout, ran.stderr


def told_by(folder, body, **limits):
    """What became of each attempt of a script."""
    script = folder / "own" / "agent.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(f"{TRIED}{textwrap.dedent(body)}\nprint(json.dumps(told))\n")
    code, out, err = run([sys.executable, script], **limits)
    assert code == 0, err
    return json.loads(out)


def program(place, body="cat"):
    """A program that shows the file it is given."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f'#!/bin/sh\n{body} "$@"\n')
    place.chmod(0o755)
    return place


# -- what is opened ----------------------------------------------------------------------------------------------------


def test_a_bare_program_opens_its_own_folder_and_not_the_one_above(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("key")
    beside = tmp_path / "project" / "beside"
    agent = program(tmp_path / "project" / "agent")
    beside.write_text("its own")
    assert run([agent, secret.parent / "project" / "beside"])[1] == "its own"
    shown = program(tmp_path / "project" / "shown", f"cat {secret}")
    code, out, err = run([shown])
    assert (code != 0, out) == (True, ""), err
    assert "denied" in err


@pytest.mark.parametrize("withheld", ["home", "working folder", "data", "output", "temporary files"])
def test_of_a_folder_that_holds_what_is_not_its_own_a_program_gets_itself_alone(tmp_path, monkeypatch, withheld):
    """A home, the working folder, the data and the run's output are never opened, nor anything above them."""
    folder = tmp_path / "folder"
    secret = folder / "below" / "secret"
    secret.parent.mkdir(parents=True)
    secret.write_text("key")
    if withheld == "home":
        monkeypatch.setenv("HOME", str(folder))
    elif withheld == "working folder":
        monkeypatch.chdir(secret.parent)
    elif withheld == "temporary files":
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
    else:
        hold_back(secret)
    agent = program(folder / "agent", f"echo here; cat {secret}")
    code, out, err = run([agent])
    assert (code != 0, out) == (True, "here\n")
    assert "denied" in err
    assert str(folder) in AgentLimits(sandbox=True).withheld([str(agent)])
    assert run([agent], reads=(str(folder),))[:2] == (0, "here\nkey"), "unless the user names it"


def test_data_holds_its_file_back_and_a_run_its_folder(tmp_path):
    from rolltree.training.run import RunFolder

    data = tmp_path / "data" / "q.jsonl"
    data.parent.mkdir()
    data.write_text('{"prompt": "1+1=", "answer": "2"}\n' * 16)
    load_task(f"jsonl:{data}")
    out = tmp_path / "runs" / "mine"
    RunFolder(out, resume=False).close()
    for folder in (data.parent, tmp_path / "runs", out):
        assert not opened.may_open(folder)
    assert opened.may_open(tmp_path / "elsewhere")


def test_system_folders_are_opened_around_what_is_held_back(tmp_path, monkeypatch):
    """A working folder in /usr/src, as in many containers, does not keep a program from its libraries."""
    for name in ("bin/tool", "src/app/answers", "src/other/file", "data/answers"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "src" / "link").symlink_to(tmp_path / "data")
    monkeypatch.chdir(tmp_path / "src" / "app")
    hold_back(tmp_path / "data" / "answers")
    got = opened.around(tmp_path)
    assert got == [tmp_path / "bin", tmp_path / "src" / "other"]


def test_environments_are_known_by_what_they_hold(tmp_path, monkeypatch):
    """Python's, conda's and node's; a folder that has a `bin` alone is none, and a home that is one gives its parts."""
    python = tmp_path / "python"
    for name in ("python/bin/python3", "python/lib/python3.12/os.py", "venv/bin/tool", "plain/bin/tool", "plain/secret",
                 "conda/bin/tool", "conda/conda-meta/history", "node/bin/node", "node/include/node/node.h",
                 "pyenv/shims/tool", "pyenv/libexec/pyenv"):  # fmt: skip
        program(tmp_path / name)
    (tmp_path / "venv" / "pyvenv.cfg").write_text(f"home = {python / 'bin'}\nversion = 3.12\n")
    (tmp_path / "venv" / "bin" / "python").symlink_to(python / "bin" / "python3")
    script = program(tmp_path / "elsewhere" / "script")
    script.write_text(f"#!{tmp_path}/venv/bin/python\n")
    linked = tmp_path / "links" / "tool"
    linked.parent.mkdir()
    linked.symlink_to(tmp_path / "conda" / "bin" / "tool")

    def found(word):
        return {str(place.relative_to(tmp_path)) for place in opened.places([str(word)]) if tmp_path in place.parents}

    for word in ("venv/bin/tool", "venv/bin/python", "elsewhere/script"):
        assert {"venv", "python"} <= found(tmp_path / word)
    assert found(tmp_path / "plain" / "bin" / "tool") == {"plain/bin"}
    assert "conda" in found(linked)
    assert "node" in found(tmp_path / "node" / "bin" / "node")
    assert "pyenv" in found(tmp_path / "pyenv" / "shims" / "tool")
    monkeypatch.setenv("HOME", str(tmp_path / "venv"))
    at_home = found(tmp_path / "venv" / "bin" / "tool")
    assert "venv" not in at_home
    assert {"venv/bin", "venv/pyvenv.cfg", "python"} <= at_home


def test_this_environment_and_the_systems_programs_start(tmp_path):
    script = tmp_path / "own" / "agent.py"
    script.parent.mkdir()
    script.write_text("import numpy; print(numpy.zeros(2).sum())")
    assert run([sys.executable, script])[:2] == (0, "0.0\n")
    assert run(["sh", "-c", "echo $((1 + 1))"])[:2] == (0, "2\n")
    if shutil.which("node"):
        assert run(["node", "-e", "console.log(1 + 1)"])[:2] == (0, "2\n")


@pytest.mark.skipif(not os.path.exists("/etc/shadow"), reason="a system without it")
def test_an_agent_of_root_reads_of_the_system_what_every_user_may():
    assert run(["cat", "/etc/passwd"])[0] == 0
    code, out, err = run(["sh", "-c", "cat /etc/shadow"])
    assert (code != 0, out) == (True, "")
    assert "denied" in err


def test_a_folder_to_read_that_is_not_there_is_refused_before_work_starts(tmp_path):
    with pytest.raises(TaskError, match="no-such"):
        load_task(f"agent:true?task=countdown&sandbox=true&reads={tmp_path}/no-such")


# -- what stays shut ---------------------------------------------------------------------------------------------------


@contextmanager
def listening(address, kind=socket.SOCK_STREAM, family=socket.AF_UNIX):
    with socket.socket(family, kind) as server:
        server.bind(address)
        if kind == socket.SOCK_STREAM:
            server.listen()
        yield server


def test_sockets_of_the_host_are_out_of_reach(tmp_path):
    """Those that files lead to (docker, ssh-agent), abstract ones, the virtual machine's, and datagrams."""
    own = tmp_path / "own"
    own.mkdir()
    abstract = f"\0rolltree-{os.getpid()}-{id(own)}"
    with (
        listening(str(own / "stream")), listening(str(own / "datagram"), socket.SOCK_DGRAM) as heard,
        listening(abstract), listening(("127.0.0.1", 0), socket.SOCK_DGRAM, socket.AF_INET) as udp,
    ):  # fmt: skip
        heard.setblocking(False)
        udp.setblocking(False)
        told = told_by(
            tmp_path,
            f"""
            def unix(address):
                with socket.socket(socket.AF_UNIX) as s: s.connect(address)
            def by_pair():
                a, b = socket.socketpair(type=socket.SOCK_DGRAM)
                a.sendto(b"x", {str(own / "datagram")!r})
            tried("stream", lambda: unix({str(own / "stream")!r}))
            tried("abstract", lambda: unix({abstract!r}))
            tried("pair", by_pair)
            tried("raw pair", lambda: libc.socketpair(1, 3, 0, (ctypes.c_int * 2)()))
            tried("vsock", lambda: socket.socket(40, 1))
            tried("netlink", lambda: socket.socket(16, 3))
            tried("io_uring", lambda: libc.syscall(425, 4, ctypes.create_string_buffer(120)))
            tried("other table", lambda: libc.syscall(0x40000000 + 41, 1, 1, 0))
            a, b = socket.socketpair()
            a.send(b"x")
            assert b.recv(1) == b"x", "its own pairs work"
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
                s.sendto(b"x", ("127.0.0.1", {udp.getsockname()[1]}))
            """,
        )
        assert set(told.values()) == {"refused"}, told
        for each in (heard, udp):
            with pytest.raises(BlockingIOError):
                each.recv(1)


def test_it_reaches_the_policy_and_no_other_address_on_its_port(tmp_path):
    """The policy's port of this machine is led in; the same port of any other address is not there."""
    said = b"x" * 3_000_000

    def answer(server):
        connection, _ = server.accept()
        with connection:
            got = bytearray()
            while part := connection.recv(65536):
                got += part
            connection.sendall(bytes(got))

    with listening(("0.0.0.0", 0), family=socket.AF_INET) as server:
        port = server.getsockname()[1]
        thread = threading.Thread(target=answer, args=(server,), daemon=True)
        thread.start()
        told = told_by(
            tmp_path,
            f"""
            def elsewhere():
                with socket.create_connection(("127.0.0.2", {port}), 5) as s: return "connected"
            tried("elsewhere", elsewhere)
            with socket.create_connection(("127.0.0.1", {port})) as s:
                s.sendall(b"x" * {len(said)})
                s.shutdown(socket.SHUT_WR)
                got = 0
                while part := s.recv(65536): got += len(part)
            told["back"] = got
            """,
            port=port,
        )
        thread.join()
    assert told == {"elsewhere": "refused", "back": len(said)}


def test_memory_and_queues_of_one_rollout_are_not_there_for_the_next(tmp_path):
    libc = ctypes.CDLL(None, use_errno=True)
    key = 0x5EED0000 + os.getpid() % 65536
    ours = libc.shmget(key, 4096, 0o1666)
    name = f"/rolltree-{os.getpid()}".encode()
    assert ours >= 0
    try:
        body = f"""
        tried("memory of the host", lambda: libc.shmget({key}, 4096, 0))
        tried("queue", lambda: libc.msgget({key} + 1, 0))
        tried("semaphores", lambda: libc.semget({key} + 2, 1, 0))
        tried("posix queue", lambda: libc.mq_open({name!r}, 0))
        assert libc.msgget({key} + 1, 0o1666) >= 0
        assert libc.semget({key} + 2, 1, 0o1666) >= 0
        libc.mq_open({name!r}, 0o102, 0o666, None)
        """
        for _ in range(2):
            assert set(told_by(tmp_path, body).values()) == {"refused"}
    finally:
        libc.shmctl(ours, 0, None)


def test_keys_are_refused(tmp_path):
    told = told_by(
        tmp_path,
        """
        numbers = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[os.uname().machine]
        tried("add", lambda: libc.syscall(numbers[0], b"user", b"mine", b"x", 1, -4))
        tried("request", lambda: libc.syscall(numbers[1], b"user", b"mine", None, -4))
        tried("session", lambda: libc.syscall(numbers[2], 0, -3, 0))
        """,
    )
    assert set(told.values()) == {"refused"}, told


def test_files_of_others_keep_their_dates_modes_and_attributes(tmp_path):
    """Which no rule over opening files forbids: on one that is its own to read, a rollout would leave word there."""
    own = tmp_path / "own"
    own.mkdir()
    beside = own / "beside"
    beside.write_text("x")
    before = os.stat(beside)
    told = told_by(
        tmp_path,
        f"""
        p = {str(beside)!r}
        tried("mode", lambda: os.chmod(p, 0o777))
        tried("date", lambda: os.utime(p, (0, 0)))
        tried("owner", lambda: os.chown(p, os.getuid(), os.getgid()))
        tried("attribute", lambda: os.setxattr(p, "user.word", b"x"))
        tried("remount", lambda: libc.mount(None, b"/", None, 32 | 4096, None))
        tried("unmount", lambda: libc.umount2(os.getcwd().encode(), 2))
        open("mine", "w").write("x")
        os.chmod("mine", 0o777)
        """,
    )
    assert set(told.values()) == {"refused"}, told
    after = os.stat(beside)
    assert (after.st_mode, after.st_mtime, after.st_ctime) == (before.st_mode, before.st_mtime, before.st_ctime)


def test_children_and_threads_are_bounded(tmp_path):
    """Hard for every user but root; root's agent is ended. Either way no more than so many go on."""
    script = tmp_path / "own" / "agent.py"
    script.parent.mkdir()
    script.write_text(
        "import os, sys, time\nn = 0\n"
        "try:\n    while n < 3000:\n        if os.fork() == 0: time.sleep(600)\n        n += 1\n"
        "except BlockingIOError: print(n); sys.exit()\ntime.sleep(600)\n"
    )
    code, out, err = run([sys.executable, script], processes=20)
    assert (code, out) == (0, "19\n") if os.getuid() else (code, err) == (
        122, "it had more than 20 processes and threads at a time and was stopped\n"
    )  # fmt: skip
    threads = tmp_path / "own" / "threads.py"
    threads.write_text(
        "import sys, threading, time\n"
        "try:\n    for _ in range(2000): threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "except RuntimeError: sys.exit(5)\ntime.sleep(600)\n"
    )
    assert run([sys.executable, threads], processes=20)[0] == (5 if os.getuid() else 122)
    assert (
        run(["sh", "-c", "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0 & true); done; echo ok"], processes=20)[1] == "ok\n"
    )


def test_what_its_folder_holds_is_bounded_and_gone_with_it(tmp_path):
    told = told_by(
        tmp_path,
        """
        def fill():
            for number in range(9):
                with open(str(number), "wb") as file: file.write(b"x" * 500_000)
        tried("bytes", fill)
        for number in range(9):
            if os.path.exists(str(number)): os.unlink(str(number))
        open("mine", "w").write("x" * 500_000)
        """,
        scratch=2,
    )
    assert told == {"bytes": "refused"}


def test_orphans_of_a_sandboxed_agent_are_reaped_and_it_can_end_itself(tmp_path):
    told = told_by(
        tmp_path,
        """
        for _ in range(50):
            subprocess.run(["/bin/sh", "-c", "(exec sleep 0) & :"], check=True)
        told["ok"] = 1
        """,
        processes=30,
    )
    assert told == {"ok": 1}
    ended = tmp_path / "own" / "ended.py"
    ended.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\nprint('went on')")
    assert run([sys.executable, ended])[:2] == (128 + 15, "")


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        ("import rolltree.task.sandbox.seccomp as s; s.FAMILIES = (1, 2, 10)", "no socket of the host"),
        ("import rolltree.task.sandbox.seccomp as s; s.KEPT_FROM_AGENTS = {}", "keys"),
        ("import rolltree.task.sandbox.layers as s; s.read_only = lambda: None", "changes no file"),
        ("import rolltree.task.sandbox.layers as s; s.NEW_IPC = 0", "shares no memory"),
        ("import rolltree.task.sandbox.landlock as s; s.confine = lambda *a, **k: ''", "reads no file"),
        ("import rolltree.task.sandbox.layers as s; s.own_folder = lambda *a: None", "holds no more"),
        ("import rolltree.gateway.agents.boxed as s; s.tasks = lambda pid: 0", "processes" if not os.getuid() else ""),
    ],
)
def test_a_promise_that_does_not_hold_is_named_and_nothing_is_started(tmp_path, monkeypatch, fault, named):
    """Each is tested inside, before the agent's first line, on a machine that does without one layer."""
    head, _, tail = limits.LAUNCH.partition("from rolltree")
    monkeypatch.setattr(limits, "LAUNCH", f"{head}{fault}; from rolltree{tail}")
    code, out, err = run(["echo", "started"])
    if named:
        assert (code, out) == (121, "")
        assert named in err
        assert len(err.splitlines()) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_another_user_is_bound_too(tmp_path):
    """The same promises, and children bounded by the kernel, for one who is not root."""
    python = shutil.which("python3", path="/usr/bin:/bin")
    old = "import sys; sys.exit(sys.version_info < (3, 11))"
    if python is None or subprocess.run([python, "-c", old], check=False).returncode:
        pytest.skip("needs a Python of the system")
    package = tmp_path / "src"
    shutil.copytree(Path(opened.__file__).parents[2], package / "rolltree", ignore=shutil.ignore_patterns("*.pyc"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    body = (
        "import os, sys, time\nn = 0\n"
        "try:\n    while n < 99:\n        if os.fork() == 0: time.sleep(600)\n        n += 1\n"
        "except BlockingIOError: print(n)\n"
    )
    made = AgentLimits(sandbox=True, processes=20).command([python, "-c", body], str(scratch), 1)
    swapped = {sys.executable: python, limits.ROOT: str(package)}
    for place in (tmp_path, *tmp_path.parents):
        if place.owner() == "root" and place != Path("/") and os.stat(place).st_mode & 0o005 != 0o005:
            os.chmod(place, 0o755)
    os.chmod(scratch, 0o777)
    ran = subprocess.run(
        [swapped.get(word, word) for word in made], user=65534, group=65534, extra_groups=[], cwd=scratch,
        capture_output=True, text=True, timeout=120, env={"PATH": "/usr/bin:/bin"}, check=False,
    )  # fmt: skip
    assert (ran.stdout, ran.returncode) == ("19\n", 0), ran.stderr
