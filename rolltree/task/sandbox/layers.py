"""The layers of a box, in the order they go on; each returns its name or raises why it cannot hold here."""

from __future__ import annotations

import ctypes
import os
import resource
import signal

from rolltree.task.sandbox.kernel import LINUX, PR_SET_NO_NEW_PRIVS, PR_SET_PDEATHSIG, KernelError, checked, libc, prctl

NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_NETWORK = 0x20000, 0x8000000, 0x10000000, 0x40000000
NEW_PIDS = 0x20000000
PRIVATE, NO_SUID, NO_DEVICES, NO_EXEC = 1 << 18 | 1 << 14, 2, 4, 8
MOUNT_SETATTR, HERE, RECURSIVE = 442, -100, 0x8000
DESCRIPTORS, FILES = 64, 256
CAPABILITIES = 0x20080522
"""Version of the structure that capset takes."""


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user")]


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
    own_namespaces(NEW_MOUNTS | NEW_IPC | NEW_NETWORK)
    own_folder(scratch, disk, FILES, NO_EXEC)
    return "namespaces"


def own_namespaces(kinds: int) -> None:
    """Namespaces of these kinds that belong to this process, in which it is the user it was; mounts stay in them."""
    user, group = os.getuid(), os.getgid()
    unshare(NEW_USER | kinds)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    if kinds & NEW_MOUNTS:
        _mount(None, "/", None, PRIVATE, None)


def unshare(kinds: int) -> None:
    """Leave namespaces of these kinds for new ones."""
    if not LINUX:
        raise KernelError(0, "namespaces are Linux's")
    checked("unshare", libc().unshare(kinds))


def own_folder(place: str, size: int, files: int, flags: int = 0) -> None:
    """Make a folder a file system of its own, in memory, with so many bytes and files, and go there."""
    options = f"size={size},nr_inodes={files},mode=700"
    _mount("tmpfs", place, "tmpfs", NO_SUID | NO_DEVICES | flags, options)
    os.chdir(place)


def read_only() -> None:
    """Nothing that is mounted now can be changed, not even by what opens no file: chmod, utime, attributes."""
    asked = _MountAttributes(set=1)
    size = ctypes.c_size_t(ctypes.sizeof(asked))
    whole = libc().syscall(MOUNT_SETATTR, HERE, b"/", ctypes.c_uint(RECURSIVE), ctypes.byref(asked), size)
    checked("mount_setattr", whole)


def drop_capabilities() -> None:
    """Give up what root, or the owner of a namespace, may do beyond others."""
    if LINUX:
        header, none = (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
        checked("capset", libc().capset(ctypes.byref(header), ctypes.byref(none)))


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, data)]
    checked("mount", libc().mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]))
