"""Values that programs stumble over, for every grammar."""

from __future__ import annotations

import random
from typing import Any

TEXTS = (
    "", " ", "nan", "inf", "-inf", "-1", "0", "1e999", "9" * 400, "1_000", "0x10", "maybe", "None", "true", "[]", "{}",
    "--", "-", "a,b", "a=b", "💥", "\x1b]0;x\x07", "[bold]x[/]", "\u202e", "half \udc80", "../..", "/", "/dev/null",
    "/proc/self/mem", "/nonexistent/place", "a" * 5000, "%s%n", "$(id)", "'; drop table x; --", "\t", "x\ny",
)  # fmt: skip
"""What stands on a command line (no null character: no system hands one over)."""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), "", "1", "\ud800",
    "a\x00b", "x" * 10_000, [], [1], [[[]]], {}, {"a": 1}, {"": None},
)  # fmt: skip
"""What JSON, or a program, may say."""


def broken_json(rng: random.Random, text: str) -> str:
    """JSON with a part cut out, doubled, turned or replaced."""
    for _ in range(rng.randint(1, 3)):
        a = rng.randrange(len(text) + 1)
        b = min(len(text), a + rng.randrange(6))
        piece = rng.choice(
            ["", text[a:b] * 2, text[a:b][::-1], rng.choice('{}[]",:\\\x00\ud800e-'), "[" * 3000, "1e999"]
        )
        text = text[:a] + piece + text[b:]
    return text
