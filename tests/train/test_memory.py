"""Freed memory that stays: taken again without asking the system for its pages."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rolltree.train.memory import keep_freed

ROUNDS = """
import resource, sys
import torch
from rolltree.train.memory import keep_freed
if sys.argv[1] == "kept":
    assert keep_freed()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [torch.ones(6 << 20) for _ in range(8)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print([faults() for _ in range(6)][-1])
"""


@pytest.mark.skipif(not keep_freed(), reason="the system's allocator is not glibc's")
def test_what_was_freed_is_taken_again_without_page_faults():
    kept, given_back = (
        int(subprocess.run([sys.executable, "-c", ROUNDS, how], check=True, capture_output=True, text=True).stdout)
        for how in ("kept", "left")
    )
    assert given_back > 1000, "otherwise there is nothing to save here, and the function should go"
    assert kept < given_back / 100
