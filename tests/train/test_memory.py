"""Freed memory that stays: taken again without asking the system for its pages."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from rolltree.training.memory import keep_freed

ROUNDS = """
import ctypes, sys
from rolltree.training.memory import keep_freed

class Held(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

if sys.argv[1] == "kept":
    assert keep_freed()
libc = ctypes.CDLL(None)
libc.mallinfo2.restype = Held
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def held():
    now = libc.mallinfo2()
    return now.arena + now.hblkhd  # what the process has from the system: its heap, and what was mapped by itself
pieces = [0] * 8
before = held()
for _ in range(6):
    for i in range(8):
        pieces[i] = libc.malloc(24 << 20)
    for i in range(8):
        libc.free(pieces[i])
print(held() - before)
"""
SIZE = 8 * (24 << 20)


@pytest.mark.skipif(not keep_freed() or not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="wants glibc 2.33 or later")
def test_what_was_freed_stays_with_the_process():
    """Asked of the allocator itself, not of the page faults: not every system counts them."""
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", ROUNDS, how], check=True, capture_output=True, text=True).stdout)
        for how in ("kept", "left")
    )
    assert given_back < SIZE * 0.5, "otherwise there is nothing to save here, and the function should go"
    assert SIZE * 0.9 < kept < SIZE * 1.1, "one round's worth is kept, and every later round takes the same"
