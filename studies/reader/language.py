"""What the reader is asked and what it says: notes, questions, attempts, verdicts, digests, mends.

    a7b3c9d2?bc:b3c9=2;        notes, a question (b + c), an attempt: both notes read off, and the last digit of the sum
    a7b3c9d2?bc:b3c9=2;!b3c9=2;y  a verdict on it: what it should say, and y or n
    a7b3c9d2?bc:b3c9=1;~b3c9=2;  a mend of it
    ?bc:b3c9=2;#b3c9;          a digest of it: what was read, without what was claimed
    a7b3c9d2|b3c9=2|?bc:…      an attempt with an earlier one in sight
    a7b3c9d2@c9b3a7            notes read off in any order (it is how reading is learned)

Its attempts err in two ways: it reads the wrong note (noise), and where a 7 was read its sum is one too high (a bug
that more samples repeat). Verdicts and mends have no such bug, so checking is easier than answering.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

KEYS = "abcdefghijklmnopqrstuvwxyz"
NOTES = 8
BUGGED = 7


@dataclass(frozen=True, slots=True)
class Notes:
    """Values by key, in the order they stand, and the two keys that are asked for."""

    values: tuple[tuple[str, int], ...]
    asked: tuple[str, str]

    @property
    def text(self) -> str:
        """The notes as they are read."""
        return "".join(f"{key}{value}" for key, value in self.values)

    @property
    def question(self) -> str:
        """What is asked."""
        return f"?{''.join(self.asked)}:"

    def value(self, key: str) -> int:
        """What a note says."""
        return dict(self.values)[key]

    @property
    def right(self) -> str:
        """The right attempt."""
        return attempt(self.asked, tuple(self.value(key) for key in self.asked))


def attempt(asked: tuple[str, str], read: tuple[int, ...], off: int = 0) -> str:
    """An attempt with these notes read, and its sum so far off."""
    return "".join(f"{k}{v}" for k, v in zip(asked, read, strict=True)) + f"={(sum(read) + off) % 10};"


def drawn(rng: Random, most: int = NOTES, least: int = 2) -> Notes:
    """Notes with different keys, and a question about two of them."""
    keys = rng.sample(KEYS, rng.randint(least, most))
    first, second = rng.sample(keys, 2)
    return Notes(tuple((key, rng.randrange(10)) for key in keys), (first, second))


def played(notes: Notes, rng: Random, noise: float = 0.08, bug: float = 0.9) -> str:
    """An attempt as the reader makes them: each note misread at `noise`, the sum wrong at `bug` where it read a 7."""
    others = [value for _, value in notes.values]
    read = tuple(rng.choice(others) if rng.random() < noise else notes.value(key) for key in notes.asked)
    return attempt(notes.asked, read, off=int(BUGGED in read and rng.random() < bug))


def spoiled(notes: Notes, rng: Random) -> str:
    """An attempt that is wrong: a misread note, the bug, or another sum."""
    while True:
        read = [notes.value(key) for key in notes.asked]
        kind = rng.randrange(3)
        if kind == 0:
            read[rng.randrange(2)] = rng.choice([value for _, value in notes.values] + [rng.randrange(10)])
        off = 0 if kind == 0 else 1 if kind == 1 else rng.randrange(1, 10)
        text = attempt(notes.asked, tuple(read), off)
        if text != notes.right:
            return text


def document(rng: Random, most: int, reading: float) -> tuple[str, str]:
    """What is asked, and what is to be written: reading off at that share, else one of the five roles."""
    if rng.random() < reading:
        notes = drawn(rng, most)
        order = [rng.choice(notes.values) for _ in range(NOTES)]
        return f"{notes.text}@", "".join(f"{key}{value}" for key, value in order)
    notes = drawn(rng, most)
    head = notes.text + notes.question
    match rng.choices(("solve", "prior", "judge", "mend", "digest"), (5, 2, 5, 2, 1))[0]:
        case "solve":
            return head, played(notes, rng)
        case "prior":
            earlier = notes.right if rng.random() < 0.5 else spoiled(notes, rng)
            said = notes.right if earlier == notes.right and rng.random() < 0.95 else played(notes, rng)
            return f"{notes.text}|{earlier.rstrip(';')}|{notes.question}", said
        case "judge":
            right = rng.random() < 0.5
            return f"{head}{notes.right if right else spoiled(notes, rng)}!", f"{notes.right}{'y' if right else 'n'}"
        case "mend":
            shown = notes.right if rng.random() < 0.3 else spoiled(notes, rng)
            return f"{head}{shown}~", notes.right
        case _:
            shown = played(notes, rng)
            return f"{notes.question}{shown}#", f"{shown.partition('=')[0]};"
