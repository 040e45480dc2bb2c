"""ETS with the embedded policy, held against votes over as many tokens."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.generate.independent import Independent
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.random import mix
from rolltree.generate.runner import grow
from rolltree.task.protocol import Item, Task
from rolltree.task.registry import load_task
from rolltree.tree import Forest, Node, Tree
from rolltree_papers.ets import StepSearch
from studies.lab.claim import Measured


@dataclass(frozen=True, slots=True)
class Accuracy:
    """A search against votes over independent rollouts that decoded as many tokens on the same items."""

    search: float
    majority: float
    weighted: float
    """A vote weighted by confidence, as the search's own is."""
    best: float
    """The most confident rollout's answer."""
    single: float
    """One rollout."""
    decoded: float
    """Tokens per item, the same for all."""
    nodes: float
    """Nodes on the search's finished paths per item: what a cache of prefixes would hold."""


def ets(seed: int) -> Measured:
    """ETS's answer against the best of three ways to choose among independent rollouts at equal decoded tokens."""
    found, acted = played(StepSearch(width=16, scorer=Confidence("path")), load_task("arithmetic"), seed)
    return Measured(found.search, max(found.majority, found.weighted, found.best), acted=acted)


def accuracy(strategy: StepSearch, task: Task, seed: int, items: int = 200, model: str = "nano") -> Accuracy:
    """Both on held-out items."""
    return played(strategy, task, seed, items, model)[0]


def played(
    strategy: StepSearch, task: Task, seed: int, items: int = 200, model: str = "nano"
) -> tuple[Accuracy, dict[str, float]]:
    """Run both on held-out items, and count how often the search acted; votes take whole rollouts in order until the
    search's tokens are spent."""
    asked = list(islice(task.items("test", seed), items))

    account = Budget()

    async def run() -> tuple[Forest, Forest]:
        from rolltree.engine.local import LocalEngine

        engine = LocalEngine(model)
        try:
            found = await grow(strategy, engine, task, asked, seed=seed, budget=account)
            flat = await grow(Independent(2 * strategy.width), engine, task, asked, seed=mix(seed, "vote"))
        finally:
            await engine.close()
        return found, flat

    found, flat = asyncio.run(run())
    rows = [_row(found[item.id], flat[item.id], item) for item in asked]
    means = Accuracy(*(float(np.mean(column)) for column in zip(*rows, strict=True)))
    return means, counted("ets", found, account)


def _row(search: Tree, flat: Tree, item: Item) -> tuple[float, ...]:
    written = sum(len(n) for n in search if n.role == "policy")
    voters = within(flat, written)
    right = right_answers(search, flat, item)
    chosen = [search.notes.get("answer"), *votes([(str(n.notes["answer"]), confidence(n)) for n in voters
                                                  if n.notes.get("answer") is not None])]  # fmt: skip
    single = float(np.mean([leaf.scores.get("reward", 0.0) for leaf in flat.leaves()]))
    kept = len({n.id for leaf in search.leaves() if leaf.status == "done" for n in search.path(leaf)})
    return (*(float(answer in right) for answer in chosen), single, float(written), float(kept))


def within(flat: Tree, tokens: int) -> Sequence[Node]:
    """The first independent rollouts that together decoded at most so many tokens; one at least."""
    taken: list[Node] = []
    for leaf in flat.leaves():
        tokens -= len(leaf)
        if tokens < 0 and taken:
            break
        taken.append(leaf)
    return taken


def confidence(leaf: Node) -> float:
    """Geometric mean probability of a rollout of one run."""
    return float(np.exp(leaf.logp.mean())) if leaf.logp is not None and len(leaf) else 0.0


def votes(voters: Sequence[tuple[str, float]]) -> tuple[str | None, str | None, str | None]:
    """Answers by plain majority, by confidence in all, and of the single most confident; first come wins ties."""
    if not voters:
        return None, None, None
    plain, weighted = Counter[str](), defaultdict[str, float](float)
    for answer, weight in voters:
        plain[answer] += 1
        weighted[answer] += weight
    best = max(voters, key=lambda voter: voter[1])[0]
    return plain.most_common(1)[0][0], max(weighted, key=lambda answer: weighted[answer]), best


def right_answers(search: Tree, flat: Tree, item: Item) -> Sequence[str]:
    """Answers that a verifier accepted in either tree, and the item's own."""
    accepted = [str(leaf.notes["answer"]) for tree in (search, flat) for leaf in tree.leaves()
                if leaf.scores.get("reward", 0.0) >= 1 and leaf.notes.get("answer") is not None]  # fmt: skip
    return [str(item.answer), *accepted]
