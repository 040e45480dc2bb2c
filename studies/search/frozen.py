"""Searches against majority and most confident at equal tokens: `python -m studies.search.frozen`.

The task is countdown, whose verifier may be asked while one searches: it reads the equation and knows no answer. A
search that asks it is held against independent rollouts that are chosen among by it too (`verified`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rolltree.lab.arms import Arm
from rolltree.lab.claim import Measured
from rolltree.lab.frozen import BASELINES, MANY, FrozenRunner
from rolltree.lab.runner import Conditions, Spec
from studies.command import run_study

TOKENS, ITEMS = 250, 48
VERIFIED = Arm("verified best of n", "best_of_n", (("final", "best"), ("n", MANY), ("worth", "verifier")))
ARMS: Mapping[str, Arm] = {
    "one": Arm("one rollout", "best_of_n", (("n", 1),)),
    **{arm.label: arm for arm in BASELINES},
    "verified": VERIFIED,
    "ets": Arm("ets", "ets"),
    "beam": Arm("beam", "ets", (("select", "beam"),)),
    "dvts": Arm("dvts", "ets", (("select", "dvts"),)),
    "mcts": Arm("mcts", "mcts"),
    "mcts verified": Arm("mcts verified", "mcts", (("final", "best"), ("worth", "verifier"))),
    "i_mcts": Arm("i_mcts", "i_mcts"),
    "tot": Arm("tot", "tot", (("turns", 200),)),
    "tot, best first": Arm("tot, best first", "tot", (("order", "best"), ("turns", 200))),
}


def accuracy(arm: Arm, seed: int, *, tokens: int = TOKENS, items: int = ITEMS, task: str = "countdown") -> float:
    """Share of held-out items answered right with so many tokens each."""
    spec = Spec(arm, seed, Conditions(task, float(tokens * items), eval_items=items))
    with tempfile.TemporaryDirectory() as folder:
        trace = FrozenRunner().run(spec, Path(folder), lambda cost, what: None)
    return float(trace.rows[0]["eval/pass@1"])


def _best(names: Sequence[str], seed: int) -> float:
    return max(accuracy(ARMS[name], seed) for name in names)


def best_of_n(seed: int) -> Measured:
    """The most confident of as many rollouts as the tokens buy against one rollout."""
    return Measured(accuracy(ARMS["most confident"], seed), accuracy(ARMS["one"], seed))


def mcts(seed: int) -> Measured:
    """MCTS against the better of majority and most confident."""
    return Measured(accuracy(ARMS["mcts"], seed), _best(("majority", "most confident"), seed))


def tot(seed: int) -> Measured:
    """Depth first with the verifier against as many rollouts as the tokens buy, chosen among by the verifier too."""
    return Measured(accuracy(ARMS["tot"], seed), accuracy(ARMS["verified"], seed))


@dataclass(frozen=True)
class FrozenSettings:
    """How much is run."""

    seeds: int = 3
    """Sets of items."""
    items: int = ITEMS
    """Held-out items of each."""
    tokens: int = TOKENS
    """Most tokens for an item."""
    task: str = "countdown"
    """A task's name."""


def main(settings: FrozenSettings) -> None:
    """A line for each arm: mean accuracy and its standard error over seeds."""
    for name, arm in ARMS.items():
        found = [accuracy(arm, seed, tokens=settings.tokens, items=settings.items, task=settings.task)
                 for seed in range(settings.seeds)]  # fmt: skip
        error = float(np.std(found, ddof=1)) / len(found) ** 0.5 if len(found) > 1 else 0.0
        print(f"{name:18s} {100 * np.mean(found):5.1f} ± {100 * error:.1f} %", flush=True)


if __name__ == "__main__":
    raise SystemExit(run_study("search.frozen", FrozenSettings, main, __doc__))
