"""The process around an agent's: it puts limits and layers on and starts the agent, whose children end with it.

Started as `python -c LAUNCH ROOT JOB COMMAND …`. A sandboxed agent has two around it. The first stays in the host's
network, leads the policy's port in, and counts processes where the kernel does not. The second is the first process of
a namespace of its own: it makes the agent's file systems and network, and waits for its orphans. When either ends the
kernel ends all that is in there. What cannot be promised is said, and the agent is not started.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from rolltree.gateway.agents import promises
from rolltree.task.sandbox import landlock, layers, seccomp
from rolltree.task.sandbox.kernel import KernelError

if TYPE_CHECKING:
    import asyncio

REFUSED, ENDED = 121, 122
"""Exit codes where the agent was not started, and where it was ended from here."""
LOOK = 0.05
"""Seconds between counts of processes."""
AROUND = 2
"""Processes around a sandboxed agent, which are counted with its own."""
FILES_PER_MEGABYTE = 256
SET_FLAGS, UP = 0x8914, 0x1
LOCAL = "127.0.0.1"


def main() -> None:
    """Lock, start the agent, end as it ends."""
    job: dict[str, Any] = json.loads(sys.argv[2])
    try:
        layers.bind_to_parent(job["parent"])
        if job["sandbox"]:
            _keep_in(job, job["sandbox"])
        child = os.fork()
        if not child:
            layers.bind_to_parent(os.getppid())
            _bound(job)
            os.execvpe(sys.argv[3], sys.argv[3:], os.environ)
        _end_as(os.waitpid(child, 0)[1])
    except OSError as error:
        _refuse(error)


def _keep_in(job: dict[str, Any], box: dict[str, Any]) -> NoReturn:
    """The process outside."""
    before, ours, theirs = promises.namespaces(), *socket.socketpair()
    layers.own_namespaces(layers.NEW_MOUNTS | layers.NEW_IPC)
    counted = not promises.children_bound() and tasks(os.getpid()) > 0
    layers.unshare(layers.NEW_PIDS)  # from here on the first child is the first process in there
    child = os.fork()
    if not child:
        ours.close()
        try:
            _first(job, box, before, theirs, counted=counted)
        except OSError as error:
            _refuse(error)
    theirs.close()
    layers.drop_capabilities()
    _, got, _, _ = socket.recv_fds(ours, 1, 1)
    ours.close()
    if got:
        import asyncio

        door = socket.socket(fileno=got[0])
        if not asyncio.run(_led_in(door, box["port"], child, box["processes"] if counted else 0)):
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.write(
                2, f"it had more than {box['processes']} processes and threads at a time and was stopped\n".encode()
            )
            os._exit(ENDED)
    _end_as(os.waitpid(child, 0)[1])


def _first(
    job: dict[str, Any], box: dict[str, Any], before: dict[str, str], outside: socket.socket, *, counted: bool
) -> NoReturn:
    """The first process of the namespace. There the parent has no number; it ends with it all the same."""
    layers.bind_to_parent(os.getppid())
    layers.read_only()
    layers.own_folder(box["folder"], box["size"], max(box["size"] >> 20, 1) * FILES_PER_MEGABYTE)
    layers.unshare(layers.NEW_NETWORK)
    with _door(box["port"]) as door:
        socket.send_fds(outside, [b"x"], [door.fileno()])
    outside.close()
    agent = os.fork()
    if agent:
        layers.drop_capabilities()
        _end_as(_reaped(agent))
    layers.bind_to_parent(os.getppid())
    os.setsid()  # signals to its group are to itself alone
    job = {**job, "processes": box["processes"] + AROUND}
    _bound(job)
    layers.drop_capabilities()
    landlock.confine(box["reads"], [box["folder"], os.devnull], execute=True, connect=[box["port"]])
    seccomp.install_for_agent()
    if found := promises.broken(box, before, counted=counted):
        raise KernelError(
            0, "it cannot be promised that " + ", or that ".join(promises.PROMISES[name] for name in found)
        )
    os.execvpe(sys.argv[3], sys.argv[3:], os.environ)


def _bound(job: dict[str, Any]) -> None:
    for name, most in (
        ("RLIMIT_AS", job["memory"]), ("RLIMIT_CPU", job["cpu_seconds"]), ("RLIMIT_NPROC", job.get("processes", 0)),
    ):  # fmt: skip
        if most:
            resource.setrlimit(getattr(resource, name), (most, most))


def _door(port: int) -> socket.socket:
    """The policy's port in this network, which has nothing else."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        fcntl.ioctl(asking, SET_FLAGS, struct.pack("16sh14x", b"lo", UP))
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    door.bind((LOCAL, port))
    door.listen(128)
    return door


async def _led_in(door: socket.socket, port: int, child: int, most: int) -> bool:
    """Lead connections to the policy until the child ends; False where it had more processes than it may."""
    import asyncio

    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(os.pidfd_open(child), ended.set)
    await asyncio.start_server(lambda reader, writer: _led(reader, writer, port), sock=door)
    while most:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await ended.wait()
        if ended.is_set():
            break
        if tasks(child) - 1 > most:  # the child itself is not the agent's
            return False
    await ended.wait()
    return True


async def _led(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
    """One connection, both ways."""
    import asyncio

    try:
        back, there = await asyncio.open_connection(LOCAL, port)
    except OSError:
        writer.close()
        return
    try:
        async with asyncio.TaskGroup() as both:
            both.create_task(_passed(reader, there))
            both.create_task(_passed(back, writer))
    except* OSError:
        pass  # one of them hung up
    finally:
        there.close()
        writer.close()


async def _passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(1 << 16):
        writer.write(part)
        await writer.drain()
    writer.write_eof()


def tasks(pid: int) -> int:
    """Threads of a process and of all that came of it; 0 where this cannot be seen here."""
    found, asked = 0, [pid]
    while asked:
        place = f"/proc/{asked.pop()}/task"
        with suppress(OSError):  # it has just ended
            for thread in os.listdir(place):
                with open(f"{place}/{thread}/children", encoding="ascii") as file:
                    asked += file.read().split()
                found += 1
    return found


def _reaped(agent: int) -> int:
    """How the agent ended. What its children left behind is waited for as well."""
    while True:
        ended, status = os.wait()
        if ended == agent:
            return status


def _end_as(status: int) -> NoReturn:
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _refuse(error: OSError) -> NoReturn:
    os.write(2, f"{error.strerror or error}\n".encode())
    os._exit(REFUSED)
