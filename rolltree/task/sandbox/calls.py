"""The system calls that computing Python needs, by number on x86-64 and on arm64 (0 and above; -1 = has none).

Everything else is refused, so a call that a later kernel adds is refused too. Left out on purpose: sockets, clone and
exec, io_uring, ptrace and its kin, mounts, and whatever changes files without opening them (truncate, chmod, utime,
links), which Landlock does not govern.
"""

from __future__ import annotations

ALLOWED: dict[str, tuple[int, int]] = {
    "read": (0, 63), "write": (1, 64), "open": (2, -1), "close": (3, 57), "stat": (4, -1), "fstat": (5, 80),
    "lstat": (6, -1), "poll": (7, -1), "lseek": (8, 62), "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215),
    "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139),
    "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65), "writev": (20, 66), "access": (21, -1),
    "pipe": (22, -1), "select": (23, -1), "sched_yield": (24, 124), "mremap": (25, 216), "madvise": (28, 233),
    "dup": (32, 23), "dup2": (33, -1), "nanosleep": (35, 101), "getitimer": (36, 102), "alarm": (37, -1),
    "setitimer": (38, 103), "getpid": (39, 172), "sendfile": (40, 71), "exit": (60, 93), "uname": (63, 160),
    "flock": (73, 32), "fsync": (74, 82), "fdatasync": (75, 83), "ftruncate": (77, 46), "getcwd": (79, 17),
    "chdir": (80, 49), "rename": (82, -1), "mkdir": (83, -1), "rmdir": (84, -1), "unlink": (87, -1),
    "readlink": (89, -1), "umask": (95, 166), "gettimeofday": (96, 169), "getrlimit": (97, 163),
    "getrusage": (98, 165), "sysinfo": (99, 179), "times": (100, 153), "getuid": (102, 174), "getgid": (104, 176),
    "geteuid": (107, 175), "getegid": (108, 177), "getppid": (110, 173), "sigaltstack": (131, 132),
    "gettid": (186, 178), "futex": (202, 98), "sched_getaffinity": (204, 123), "getdents64": (217, 61),
    "restart_syscall": (219, 128), "fadvise64": (221, 223), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "exit_group": (231, 94), "openat": (257, 56), "mkdirat": (258, 34),
    "newfstatat": (262, 79), "unlinkat": (263, 35), "renameat": (264, 38), "readlinkat": (267, 78),
    "faccessat": (269, 48), "pselect6": (270, 72), "ppoll": (271, 73), "dup3": (292, 24), "pipe2": (293, 59),
    "renameat2": (316, 276), "getrandom": (318, 278), "membarrier": (324, 283), "copy_file_range": (326, 285),
    "statx": (332, 291), "close_range": (436, 436), "faccessat2": (439, 439),
}  # fmt: skip

COMMANDS: dict[str, tuple[tuple[int, int], tuple[int, ...]]] = {
    "ioctl": ((16, 29), (0x5401, 0x5413, 0x5421, 0x5450, 0x5451)),
    "fcntl": ((72, 25), (0, 1, 2, 3, 4, 5, 6, 7, 1030)),
}
"""Calls allowed for some commands (their second argument) alone: asking about terminals and closing on exec; copying
descriptors, flags and locks. Not F_SETOWN and F_SETSIG, by which a pipe sends signals to others."""

TO_SELF: dict[str, tuple[int, int]] = {"kill": (62, 129), "tgkill": (234, 131)}
"""Calls allowed where their first argument is this process."""

LIMITS = (302, 261)
"""prlimit64: allowed to ask about oneself, not to set, and not about others."""

KEPT_FROM_AGENTS: dict[str, tuple[int, int]] = {
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
}  # fmt: skip
"""What no agent may call: keys are kept for a user, across all namespaces; io_uring makes sockets past every filter."""

SOCKET: tuple[int, int] = (41, 198)
FAMILIES = (2, 10)
"""Sockets an agent may open: IPv4 and IPv6, which end in its own network. Not Unix's, which files lead to, and not the
virtual machine's, which know no namespaces."""

SOCKET_PAIR: tuple[int, int] = (53, 199)
PAIRS = (1, 5)
"""Pairs of Unix sockets an agent may have: streams and packets in sequence. A pair of datagrams sends to any path."""
