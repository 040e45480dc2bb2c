"""The layers of a box, in the order they go on; each returns its name or raises why it cannot hold here."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

from rolltree.task.sandbox.kernel import LINUX, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, KernelError, checked, libc, prctl

NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_NETWORK = 0x20000, 0x8000000, 0x10000000, 0x40000000
PRIVATE, NO_SUID, NO_DEVICES, NO_EXEC = 1 << 18 | 1 << 14, 2, 4, 8
DESCRIPTORS, FILES = 64, 256
CAPABILITIES = 0x20080522
"""Version of the structure that capset takes."""


def limits(*, cpu_seconds: int, memory: int, disk: int) -> str:
    """Resource limits. Soft and hard are one, but for the processor, whose soft limit says which one it was."""
    for name, most in (
        ("RLIMIT_CORE", 0), ("RLIMIT_NOFILE", DESCRIPTORS), ("RLIMIT_FSIZE", disk), ("RLIMIT_AS", memory),
        ("RLIMIT_NPROC", 0), ("RLIMIT_MSGQUEUE", 0), ("RLIMIT_MEMLOCK", 0),
    ):  # fmt: skip
        kind = getattr(resource, name, None)
        if kind is not None:
            resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    return "resource limits"


def bind_to_parent(parent: int) -> None:
    """Die with the process that started this one, also where it is dead already, and gain no privilege by anything."""
    if LINUX:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    if os.getppid() != parent:
        os._exit(1)


def namespaces(scratch: str, disk: int) -> str:
    """No network devices, and a scratch folder that is a file system of its own with so many bytes and few files."""
    if not LINUX:
        raise KernelError(0, "namespaces are Linux's")
    user, group = os.getuid(), os.getgid()
    checked("unshare", libc().unshare(NEW_USER | NEW_MOUNTS | NEW_IPC | NEW_NETWORK))
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    _mount(None, "/", None, PRIVATE, None)
    options = f"size={disk},nr_inodes={FILES},mode=700"
    _mount("tmpfs", scratch, "tmpfs", NO_SUID | NO_DEVICES | NO_EXEC, options)
    os.chdir(scratch)
    return "namespaces"


def drop_capabilities() -> None:
    """Give up what root, or the owner of a namespace, may do beyond others."""
    if LINUX:
        header, none = (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
        checked("capset", libc().capset(ctypes.byref(header), ctypes.byref(none)))


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    checked("mount", libc().mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]))
