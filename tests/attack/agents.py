"""Agents that try to get out of `sandbox=true`, as a policy with a shell would lead them.

Promised: the answers, the host's files, sockets, memory, keys and processes, and other rollouts' folders stay out of
reach. An agent has no more processes and bytes than it may. Nothing of it stays, and what is left of it is served.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shlex
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from rolltree.gateway.agents.limits import AgentLimits
from rolltree.gateway.agents.outside import Outside
from rolltree.gateway.agents.running import agent_of
from rolltree.task.items import TaskError
from rolltree.task.sandbox.held_back import hold_back
from tests.attack.escapes import SECRET, watched
from tests.attack.frame import Attack, BrokenPromiseError, Chance

MOST, MEGABYTES = 40, 2
LIMITS = AgentLimits(sandbox=True, processes=MOST, scratch=MEGABYTES, total_seconds=60, cpu_seconds=20)
GOT = "GOT-OUT"
"""What an attempt prints where it did what nobody may."""
KEY = 0x5EC00000 + os.getpid() % 65536
NAME = f"rolltree-attack-{os.getpid()}"
PATIENCE = 60.0
"""Seconds in which all processes of an agent that has ended must be gone."""
HONEST = "served"

HEAD = """
import ctypes, os, socket, subprocess, sys, threading, time
GOT = "GOT" + "-OUT"
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
keys = {"x86_64": (248, 249, 250), "aarch64": (217, 218, 219)}[os.uname().machine]
def sh(text): return subprocess.run(["/bin/sh", "-c", text], capture_output=True, timeout=30)
def unix(address, kind=1):
    s = socket.socket(1, kind); s.connect(address); s.send(b"x"); return GOT
def datagram(address, kind=2):
    a, b = socket.socketpair(1, kind); a.sendto(b"x", address); return GOT
def tcp(host, port): s = socket.create_connection((host, port), 2); return GOT
def udp(port): socket.socket(2, 2).sendto(b"x", ("127.0.0.1", port))
def call(*words): return GOT if libc.syscall(*words) >= 0 else "refused"
def attached(number):
    place = libc.shmat(number, None, 0o10000)
    return "refused" if place in (None, 2**64 - 1) else ctypes.string_at(place, 64)
def shared(key):
    number = libc.shmget(key, 4096, 0)
    return attached(number) if number >= 0 else "refused"
def key(kept, name):
    number = libc.syscall(keys[2], 10, kept, b"user", name, 0)
    text = ctypes.create_string_buffer(4096)
    libc.syscall(keys[2], 11, number, text, 4096)
    return text.value
def bomb(most, start):
    try:
        for _ in range(most): start()
    except (OSError, RuntimeError): return "refused"
    time.sleep(9)
    return GOT
def forked():
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
def left(word):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: os.execvp("sh", ["sh", "-c", "sleep 600; : " + word])
        os._exit(0)
def filled():
    for n in range(9):
        with open("f%d" % n, "wb") as file: file.write(b"x" * 1000000)
    return GOT
def many():
    for n in range(99999): open("m%d" % n, "w").close()
    return GOT
"""
WORK = """
from urllib.parse import urlsplit
url = urlsplit(os.environ["OPENAI_BASE_URL"])
with socket.create_connection((url.hostname, url.port)) as s: print(s.recv(64).decode())
"""
READS = (
    "open({p!r}).read()",
    "sh('cat {p}').stdout",
    "sh('cat {d}/* {d}/*/* 2>/dev/null').stdout",
    "sh('cp -r {d} . && cat */canary').stdout",
    "os.symlink({p!r}, 'l') or open('l').read()",
    "os.link({p!r}, 'k') or open('k').read()",
    "os.listdir({d!r}) and GOT",
    "os.chdir({d!r}) or open('canary').read()",
    "os.open('/', os.O_RDONLY) and GOT",
    "os.listdir('/') and GOT",
    "os.listdir(os.path.expanduser('~root')) and GOT",
    "open('/proc/{parent}/environ').read() and GOT",
    "open('/proc/{parent}/cmdline').read() and GOT",
    "open('/proc/{parent}/mem', 'rb') and GOT",
    "open('/proc/1/environ').read() and GOT",
    "os.listdir('/proc/{parent}/cwd') and GOT",
    "open('/proc/self/root' + {p!r}).read()",
    "sh('cat /tmp/rolltree-agent-*/*').stdout",
    "os.listdir(os.path.dirname(os.getcwd())) and GOT",
    "open({other!r} + '/word').read()",
    "os.chroot({d!r}) or GOT",
    "libc.unshare(0x10020000) and 0 or open({p!r}).read()",
    "libc.mount(b'/', b'.', None, 4096, None) or GOT",
    "libc.umount2(os.getcwd().encode(), 2) or GOT",
)
WRITES = (
    "open({p!r}, 'a').write('x')",
    "open({d!r} + '/new', 'w')",
    "os.truncate({p!r}, 0)",
    "os.chmod({p!r}, 0o777)",
    "os.chmod(__file__, 0o777)",
    "os.utime(__file__, (0, 0))",
    "os.setxattr(__file__, 'user.word', b'x')",
    "os.unlink(__file__)",
    "os.rename('.', {d!r} + '/new')",
    "open(os.path.dirname(__file__) + '/new', 'w')",
    "open({other!r} + '/new', 'w')",
    "open('/dev/shm/{name}', 'w') and GOT",
    "open('/tmp/{name}', 'w') and GOT",
    "libc.mount(None, b'/', None, 32 | 4096, None) or GOT",
)
CHANNELS = (
    "unix({d!r} + '/own/stream')",
    "unix({d!r} + '/own/datagram', 2)",
    "unix({abstract!r})",
    "datagram({d!r} + '/own/datagram')",
    "datagram({d!r} + '/own/datagram', 3)",
    "unix('/var/run/docker.sock')",
    "unix('/run/systemd/notify', 2)",
    "tcp('127.0.0.1', {closed})",
    "tcp('127.0.0.2', {port})",
    "tcp('10.0.0.1', {port})",
    "udp({udp})",
    "socket.socket(40, 1) and GOT",
    "socket.socket(17, 3) and GOT",
    "call(425, 4, ctypes.create_string_buffer(120))",
    "call(0x40000000 + 41, 1, 1, 0)",
    "shared({key})",
    "[attached(n) for n in range(64)]",
    "libc.shmctl(0, 15, ctypes.create_string_buffer(256)) >= 0 and GOT",
    "libc.msgget({key}, 0) >= 0 and GOT",
    "libc.mq_open(b'/{name}', 0) >= 0 and GOT",
    "libc.mq_open(b'/{name}-new', 0o102, 0o666, None) and ''",
    "libc.shmget({key} + 7, 4096, 0o1666) and ''",
    "[key(kept, b'{name}') for kept in (-1, -2, -3, -4, -5)]",
    "call(keys[0], b'user', b'{name}-word', b'x', 1, -4)",
    "call(keys[1], b'user', b'{name}', None, -3)",
    "os.kill({parent}, 9)",
    "os.kill(os.getppid(), 9)",
    "os.kill(1, 9)",
    "os.kill(-1, 9)",
    "os.killpg(0, 9)",
    "libc.ptrace(16, {parent}, 0, 0) >= 0 and GOT",
    "libc.ptrace(16, 1, 0, 0) >= 0 and GOT",
)
GROWS = (
    "bomb(200, forked)",
    "bomb(2000, forked)",
    "bomb(200, lambda: threading.Thread(target=time.sleep, args=(60,), daemon=True).start())",
    "sh(':(){{ :|:& }};:') and time.sleep(3)",
    "bomb(200, lambda: subprocess.Popen(['sleep', '60']))",
    "[left({d!r}) for _ in range(9)] and ''",
    "filled()",
    "many()",
    "sh('yes > big; head -c 9000000 /dev/zero > more && echo GOT-O\"\"UT').stdout",
)


def kept_in(rng: Chance, place: Path) -> str:
    """One to four attempts by an agent, which then does its work if it still can."""
    canary, own = watched(place), place / "own"
    own.mkdir()
    hold_back(canary)
    drawn = rng.choices((READS, WRITES, CHANNELS, GROWS), (4, 3, 5, 2), k=rng.randint(1, 4))
    with _host(own) as (known, door), tempfile.TemporaryDirectory(prefix="rolltree-agent-") as other:
        (Path(other) / "word").write_text(SECRET)  # as another rollout's
        told = {
            "p": str(canary),
            "d": str(place),
            "parent": os.getpid(),
            "other": other,
            "key": KEY,
            "name": NAME,
            **known,
        }
        tries = [rng.choice(kinds).format(**told) for kinds in drawn]
        words = _agent(rng, place, tries)
        before = _seen(place, Path(other))
        said = asyncio.run(_run(words, door))
        if GOT in said or SECRET in said:
            raise BrokenPromiseError(f"an agent got out ({said!r:.300}) by {tries}")
        if changed := _seen(place, Path(other)) ^ before:
            raise BrokenPromiseError(f"{min(changed)} was changed by {tries}")
        if found := _words_left():
            raise BrokenPromiseError(f"{found} stayed after {tries}")
    _all_ended(str(place), tries)
    return "its work done" if HONEST in said else "ended"


def _agent(rng: Chance, place: Path, tries: list[str]) -> list[str]:
    """The script, in a folder of its own or beside the answers, started by Python or as a program."""
    file = place / rng.choice(("own/agent.py", "agent.py", "own/bin/agent.py"))
    file.parent.mkdir(exist_ok=True)
    made = [f"try: print({each}, flush=True)\nexcept BaseException as e: print(type(e))\n" for each in tries]
    file.write_text(f"#!{sys.executable}\n{HEAD}{''.join(made)}{WORK}")
    file.chmod(0o755)
    return [[sys.executable, str(file)], [str(file)], ["env", sys.executable, str(file)]][rng.randrange(3)]


async def _run(words: list[str], door: socket.socket) -> str:
    """All that comes out of the agent: its answer, or how it failed."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HONEST.encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, sock=door):
        port = door.getsockname()[1]
        try:
            ended = await agent_of(shlex.join(words), LIMITS)({}, f"http://127.0.0.1:{port}/s/x/v1", "x", Outside())
        except TaskError as error:
            if "cannot be started" in str(error):
                raise
            return str(error)
        return ended.final


@contextmanager
def _host(own: Path) -> Iterator[tuple[dict[str, Any], socket.socket]]:
    """Sockets, shared memory, a queue and a key of the host, which must hear nothing; and the policy's door."""
    abstract, every = f"\0{NAME}-{own}"[:100], "0.0.0.0"
    libc = _libc()
    with ExitStack() as stack:

        def bound(address: Any, family: int, kind: int = socket.SOCK_STREAM) -> socket.socket:
            made = stack.enter_context(socket.socket(family, kind))
            made.bind(address)
            if kind == socket.SOCK_STREAM:
                made.listen()
            made.setblocking(False)
            return made

        door, closed = bound((every, 0), socket.AF_INET), bound((every, 0), socket.AF_INET)
        udp = bound((every, 0), socket.AF_INET, socket.SOCK_DGRAM)
        near = {
            "a stream": bound(str(own / "stream"), socket.AF_UNIX),
            "an abstract socket": bound(abstract, socket.AF_UNIX),
            "datagrams": bound(str(own / "datagram"), socket.AF_UNIX, socket.SOCK_DGRAM), "a port": closed, "UDP": udp,
        }  # fmt: skip
        number = libc.shmget(KEY, 4096, 0o1666)
        at = libc.shmat(number, None, 0)
        ctypes.memmove(at, SECRET.encode(), len(SECRET))
        stack.callback(libc.shmctl, number, 0, None)
        stack.callback(libc.shmdt, ctypes.c_void_p(at))
        queue = libc.mq_open(f"/{NAME}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
        stack.callback(libc.mq_unlink, f"/{NAME}".encode())
        stack.callback(os.close, queue)
        kept = libc.syscall(_keys()[0], b"user", NAME.encode(), SECRET.encode(), len(SECRET), -3)
        stack.callback(libc.syscall, _keys()[2], 3, kept)
        yield {
            "abstract": abstract, "port": door.getsockname()[1], "closed": closed.getsockname()[1],
            "udp": udp.getsockname()[1],
        }, door  # fmt: skip
        for what, each in near.items():
            try:
                each.recv(1) if each.type == socket.SOCK_DGRAM else each.accept()
            except BlockingIOError:
                continue
            raise BrokenPromiseError(f"{what} of the host heard an agent")


def _seen(*places: Path) -> set[tuple[str, int, int, int, int]]:
    """What stands in folders, with its mode, dates and size. Reading changes none of these."""
    files = [file for place in places for file in (place, *place.rglob("*"))]
    stats = [(str(file), file.lstat()) for file in files]
    return {(name, each.st_mode, each.st_mtime_ns, each.st_ctime_ns, each.st_size) for name, each in stats}


def _words_left() -> list[str]:
    """Where an agent could leave word for the next one."""
    libc = _libc()
    found = {
        "/dev/shm": Path("/dev/shm", NAME).exists(),
        "/tmp": Path("/tmp", NAME).exists(),
        "shared memory": libc.shmget(KEY + 7, 4096, 0) >= 0,
        "a queue": libc.mq_open(f"/{NAME}-new".encode(), 0) >= 0,
        "a key": any(
            libc.syscall(_keys()[2], 10, kept, b"user", f"{NAME}-word".encode(), 0) >= 0 for kept in (-3, -4, -5)
        ),
    }
    return [name for name, there in found.items() if there]


def _all_ended(mark: str, tries: list[str]) -> None:
    """No process that was started with a path of this case goes on."""
    until = time.monotonic() + PATIENCE
    while found := [each for each in psutil.process_iter(["cmdline"]) if mark in " ".join(each.info["cmdline"] or ())]:
        if time.monotonic() > until:
            raise BrokenPromiseError(f"{len(found)} processes were left by {tries}")
        time.sleep(0.02)


def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    return libc


def _keys() -> tuple[int, int, int]:
    """The numbers of add_key, request_key and keyctl."""
    return (248, 249, 250) if os.uname().machine == "x86_64" else (217, 218, 219)


ATTACKS = (Attack("agents", "agents in the sandbox", kept_in, 8, 300),)
