"""The same searches as two libraries for test-time scaling, with one model, one engine and one budget, side by side.

    python -m venv .venv-peers
    .venv-peers/bin/pip install -e . -r benchmarks/search_peers.txt
    .venv-peers/bin/python benchmarks/search_peers.py [--seeds 5] [--items 48] [--tokens 250] [--json FILE]

its_hub has self-consistency, best of n, beam search and particle filtering; treequest has MCTS. Neither has DVTS; it is
put together here from its_hub's beam search (independent beams of one path each, and the best of them).

Both sides sample the embedded policy through a local engine of their own with the same settings, in this process: a
library is given a language model and a reward model that ask that engine, as its documentation wants them. The reward
is the policy's confidence in a path, or the task's verifier; a library is handed both from a table, so it pays for no
judging. What it writes to its model is text; here that is the same as tokens, and prefixes are found in the engine's
cache by both.

A library counts samples, not tokens. So each side's width (rollouts, paths, expansions) is the largest of a list whose
mean cost on other items stays within `--tokens`, and the tokens spent stand beside what came of them. Every round
begins with the other side. Tokens a second are by processor time, all threads together.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import warnings
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from math import isqrt
from pathlib import Path
from typing import Any

from machine import clock, save
from peer_searches import Model, beam, best, consistency, dvts, mcts, particles

from rolltree.engine.local import LocalEngine
from rolltree.policy.load import load_model
from rolltree.recipe.registry import load_recipe
from rolltree.rollout.solve import SolvedItem, solve
from rolltree.task.protocol import Item, Task
from rolltree.task.registry import load_task


@dataclass(frozen=True, slots=True)
class Row:
    """One side in one round of one method."""

    method: str
    side: str
    library: str
    seed: int
    width: int
    """Samples, paths or expansions the library was given."""
    items: int
    right: float
    """Share of items answered right."""
    tokens: float
    """Decoded tokens an item."""
    seconds: float


Peer = Callable[[Model, int], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Method:
    """A library's way, the recipe that does the same, and the widths both may have."""

    library: str
    peer: Peer
    recipe: str
    sized: Sequence[str]
    """The recipe's knobs that are the width."""
    widths: Sequence[int] = range(2, 65)
    knobs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    squares: bool = False
    """Whether the library can only be given squares."""


METHODS: Mapping[str, Method] = {
    "majority": Method("its_hub", consistency, "best_of_n", ("n", "wave")),
    "best of n, confidence": Method(
        "its_hub", partial(best, worth="path"), "best_of_n", ("n", "wave"), knobs={"final": "best"}
    ),
    "best of n, verifier": Method(
        "its_hub", partial(best, worth="verifier"), "best_of_n", ("n", "wave"),
        knobs={"final": "best", "worth": "verifier"},
    ),
    "beam": Method(
        "its_hub", beam, "ets", ("width",), range(4, 65), {"select": "beam", "final": "best"}, squares=True
    ),
    "DVTS (of its beams)": Method(
        "its_hub", dvts, "ets", ("width",), range(4, 65), {"select": "dvts", "final": "best"}, squares=True
    ),
    "particles; rebase here": Method(
        "its_hub", particles, "ets", ("width",), range(4, 65), {"select": "rebase", "final": "best"}
    ),
    "MCTS, confidence": Method("treequest", partial(mcts, worth="path"), "mcts", ("turns",), knobs={"final": "best"}),
    "MCTS, verifier": Method(
        "treequest", partial(mcts, worth="verifier"), "mcts", ("turns",), knobs={"final": "best", "worth": "verifier"}
    ),
}  # fmt: skip


async def peer_side(method: Method, engine: LocalEngine, task: Task, items: Sequence[Item], width: int, seed: int
                    ) -> tuple[float, float]:  # fmt: skip
    """Share right and tokens an item of a library, sixteen items side by side."""
    turn = asyncio.Semaphore(16)

    async def one(item: Item) -> tuple[float, int]:
        async with turn:
            model = Model(engine, task, item, seed)
            text = await method.peer(model, width)
            return model.right(text), model.decoded

    rows = await asyncio.gather(*(one(item) for item in items))
    return statistics.mean(r for r, _ in rows), statistics.mean(t for _, t in rows)


async def own_side(method: Method, engine: LocalEngine, task: Task, items: Sequence[Item], width: int, seed: int
                   ) -> tuple[float, float]:  # fmt: skip
    """The same of Rolltree."""
    knobs = {**method.knobs, **dict.fromkeys(method.sized, width)}
    strategy = load_recipe(method.recipe, **knobs).build().strategy
    done: list[SolvedItem] = []
    await solve(strategy, engine, task, list(enumerate(items)), seed=seed, at_once=16,
                done=lambda answer, _: done.append(answer))  # fmt: skip
    return statistics.mean(float(a.score or 0.0) for a in done), statistics.mean(a.decoded for a in done)


SIDES = {"peer": peer_side, "rolltree": own_side}


async def measure(a: argparse.Namespace) -> None:
    task, source = load_task(a.task), load_model(a.model)
    other = list(islice(task.items("train", 0), 24))

    async def once(method: Method, side: str, items: Sequence[Item], width: int, seed: int) -> tuple[float, ...]:
        engine = LocalEngine(source)
        began = clock()
        right, cost = await SIDES[side](method, engine, task, items, width, seed)
        seconds = clock() - began
        await engine.close()
        return right, cost, seconds

    async def largest(method: Method, side: str) -> int:
        widths = [w for w in method.widths if side == "rolltree" or not method.squares or isqrt(w) ** 2 == w]
        fits, low, high = widths[0], 0, len(widths) - 1
        while low <= high:
            middle = (low + high) // 2
            if (await once(method, side, other, widths[middle], 0))[1] <= a.tokens:
                fits, low = widths[middle], middle + 1
            else:
                high = middle - 1
        return fits

    rows: list[Row] = []
    for name, method in METHODS.items():
        if a.only and name not in a.only:
            continue
        widths = {side: await largest(method, side) for side in SIDES}
        for seed in range(a.seeds):
            items = list(islice(task.items("test", seed), a.items))
            for side in ("peer", "rolltree") if seed % 2 else ("rolltree", "peer"):
                right, cost, seconds = await once(method, side, items, widths[side], seed)
                rows.append(Row(name, side, method.library, seed, widths[side], len(items), right, cost, seconds))
        told(name, [row for row in rows if row.method == name])
        save(a.json, rows)


def told(name: str, rows: Sequence[Row]) -> None:
    """One method: what was right, and tokens a second of Rolltree over the library's, by seed."""
    sides = {side: sorted((r for r in rows if r.side == side), key=lambda r: r.seed) for side in ("peer", "rolltree")}
    speed = {side: [r.tokens * r.items / r.seconds for r in of] for side, of in sides.items()}
    ratios = [own / peer for own, peer in zip(speed["rolltree"], speed["peer"], strict=True)]
    gain = [100 * (own.right - peer.right) for own, peer in zip(sides["rolltree"], sides["peer"], strict=True)]
    for side, of in sides.items():
        print(f"{name}, {rows[0].library if side == 'peer' else side}, width {of[0].width}: "
              f"{100 * statistics.mean(r.right for r in of):.1f} % right, {statistics.mean(r.tokens for r in of):.0f} "
              f"tokens an item, {statistics.median(speed[side]):.0f} a second")  # fmt: skip
    print(f"  difference {statistics.mean(gain):+.1f} ± {half_width(rows):.1f} points; tokens a second min "
          f"{min(ratios):.2f} median {statistics.median(ratios):.2f} max {max(ratios):.2f}", flush=True)  # fmt: skip


def half_width(rows: Sequence[Row]) -> float:
    """Of the 95 % interval of a difference of two shares, as if the two sides had been asked different items."""
    sides = [[r for r in rows if r.side == side] for side in SIDES]
    shares = [statistics.mean(r.right for r in of) for of in sides]
    return 196 * sum(p * (1 - p) / sum(r.items for r in of) for p, of in zip(shares, sides, strict=True)) ** 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="nano")
    parser.add_argument("--task", default="countdown")
    parser.add_argument("--items", type=int, default=48)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=250)
    parser.add_argument("--only", nargs="*", choices=tuple(METHODS), default=())
    parser.add_argument("--json", type=Path, default=None)
    a = parser.parse_args()
    clock.kind = "cpu"
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    asyncio.run(measure(a))


if __name__ == "__main__":
    main()
