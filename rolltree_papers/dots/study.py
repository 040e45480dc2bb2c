"""Pass rates foretold from references (DOTS) on simulated prompts, held against the last seen ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rolltree.control.history import History
from rolltree.control.plan import Control
from rolltree_papers.dots import Dots
from studies.lab.claim import Measured
from studies.prompts.page import POOL, columns, table
from studies.prompts.world import Floats, PromptWorld, run


def topical(seed: int, count: int = 300) -> PromptWorld:
    """Prompts whose difficulty follows from the words they are made of."""
    rng = np.random.default_rng([7, seed])
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = ["".join(rng.choice(letters, 5)) for _ in range(12)]
    effect = rng.normal(0, 2, 12)
    chosen = [rng.choice(12, 2, replace=False) for _ in range(count)]
    texts = [f"{words[a]} {words[b]} {rng.integers(1000)}" for a, b in chosen]
    return PromptWorld(
        seed=seed, logits=np.array([effect[c].sum() for c in chosen]), texts=texts, gain=0.05, drift=0.05
    )


def predicted(seed: int, steps: int = 24, references: int = 64) -> tuple[float, float, int]:
    """Correlation with the true pass rates: of DOTS's predictions, and of each prompt's last seen rate (else 1/2); and
    predictions off 1/2 for prompts that were never seen."""
    world, control, history = topical(seed), Dots(300, references=references), History(window=8)
    state, foretold = control.start(), 0
    found: list[tuple[float, float]] = []
    for number in range(1, steps + 1):
        run(control, world, 1, prompts=32, state=state, history=history, first=number)
        ids = [f"p{i}" for i in range(world.count)]
        guess = [state.predicted[uid] for uid in ids]
        rates = [history.rate(uid) for uid in ids]
        last = [0.5 if rate is None else rate for rate in rates]
        foretold += sum(rate is None and p != 0.5 for rate, p in zip(rates, guess, strict=True))
        found.append((_correlation(guess, world.rates), _correlation(last, world.rates)))
    ours, seen = np.mean(found, 0)
    return float(ours), float(seen), foretold


def dots(seed: int) -> Measured:
    """Attention over references against last seen rates."""
    ours, seen, foretold = predicted(seed)
    return Measured(ours, seen, acted={"prompts foretold before they were seen": float(foretold)})


def _correlation(guess: list[float], truth: Floats) -> float:
    x = np.asarray(guess)
    return float(np.corrcoef(x, truth)[0, 1]) if x.std() > 0 else 0.0


CONTROLS: dict[str, Callable[[PromptWorld], Control]] = {"dots": lambda _: Dots(POOL, references=64)}
"""What runs beside the other controls (`studies.prompts.page`)."""


def allocation() -> list[str]:
    """The section on the page of all controls."""
    return [
        "## Predicting from references (DOTS)",
        "Correlation with the true pass rates of 300 prompts whose difficulty follows from their words; 64 references "
        "of 8 rollouts every other step against each prompt's last seen rate.",
        table(["", "correlation"], [
            ("attention over references", columns(lambda s: predicted(s)[:1])),
            ("last seen rate", columns(lambda s: predicted(s)[1:2])),
        ]),
    ]  # fmt: skip
