"""How notes are written down, times who reads them: a factorial study of renderers (S035), `python -m
studies.renderers`.

The same notes stand in a slot of the prompt under each renderer, for the same items, so a cell is
one arm and its cost is in tokens read, over all. One policy reads every format; another was made for one format alone.
What shows is the interaction: a format has no worth of its own, only one for a reader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from random import Random

import numpy as np

from rolltree.control.brief import Brief, Slot
from rolltree.control.ledger import Budget
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import open_hand
from rolltree.generate.turns import play
from rolltree.task.protocol import Item
from studies.roles import Echo

LETTERS = Letters("abcdefgh?!=:,")
Notes = Mapping[str, str]
RENDERERS: Mapping[str, Callable[[Notes], str]] = {
    "adjacent": lambda notes: "".join(f"{k}{v}" for k, v in notes.items()),
    "equals": lambda notes: "".join(f"{k}={v}" for k, v in notes.items()),
    "lines": lambda notes: "".join(f"{k}:{v}," for k, v in notes.items()),
}
PUNCTUATION = "=:,"


@dataclass(frozen=True, slots=True)
class Cell:
    """A renderer under a reader."""

    right: float
    tokens: float
    """Read and written per item."""


def policy(formats: tuple[str, ...], skill: float = 0.95) -> TabularEngine:
    """Reads the note of the letter that is asked for, where it knows the format; else it says any letter."""
    known = {frozenset(c for c in PUNCTUATION if c in RENDERERS[name]({"a": "b"})) for name in formats}

    def row(prefix: tuple[int, ...]) -> list[float]:
        text, out = LETTERS.decode(prefix), [0.0] * len(LETTERS.alphabet)
        notes, _, said = text.partition("?")
        if len(said) > 0:
            out[LETTERS.alphabet.index("!")] = 1.0
            return out
        bare, asked = "".join(c for c in notes[:-1] if c not in PUNCTUATION), notes[-1:]
        found = dict(zip(bare[::2], bare[1::2], strict=False)).get(asked)
        reads = found is not None and frozenset(c for c in PUNCTUATION if c in notes) in known
        for letter in "abcdefgh":
            right = skill if reads else 1 / 8
            out[LETTERS.alphabet.index(letter)] = right if letter == found else (1 - right) / 7
        return out

    return TabularEngine(row, LETTERS)


READERS: Mapping[str, tuple[str, ...]] = {"any format": tuple(RENDERERS), "adjacent alone": ("adjacent",)}


def factorial(items: int = 60, seed: int = 0) -> dict[tuple[str, str], Cell]:
    """Every renderer under every reader, on the same notes."""
    return {
        (reader, name): asyncio.run(_cell(policy(formats), RENDERERS[name], items, seed))
        for (reader, formats), name in product(READERS.items(), RENDERERS)
    }


async def _cell(engine: TabularEngine, render: Callable[[Notes], str], items: int, seed: int) -> Cell:
    budget, right = Budget(), list[float]()
    hand = open_hand(engine, Echo(), seed=seed, budget=budget)
    for i in range(items):
        rng = Random(f"{seed}/{i}")
        keys = rng.sample("abcdefgh", 4)
        notes = {key: rng.choice("abcdefgh") for key in keys}
        item = Item(f"notes-{i}", f"{keys[0]}?", notes[keys[0]])
        shown = Brief((Slot("notes", render(notes), before=True),))
        here = hand.on(hand.plant(item)).side("again", shown, item=item)
        leaf = await play(here, here.tree.root)
        right.append(leaf.scores["reward"])
    spent = budget.spent
    return Cell(float(np.mean(right)), (spent.decoded + spent.prefilled) / items)


def interaction(cells: Mapping[tuple[str, str], Cell], one: str, other: str) -> float:
    """Largest difference over renderers of what two readers gain by a renderer above their own mean."""
    gain = {
        reader: np.asarray([cells[reader, name].right for name in RENDERERS])
        - np.mean([cells[reader, name].right for name in RENDERERS])
        for reader in (one, other)
    }
    return float(np.abs(gain[one] - gain[other]).max())


def main() -> None:
    """Print the table."""
    cells = factorial()
    print("reader           " + "  ".join(f"{name:>16}" for name in RENDERERS))
    for reader in READERS:
        row = (cells[reader, name] for name in RENDERERS)
        print(f"{reader:<16} " + "  ".join(f"{c.right:>6.2f} {c.tokens:>5.1f} tok" for c in row))
    print(f"interaction {interaction(cells, *READERS):.2f}")


if __name__ == "__main__":
    main()
