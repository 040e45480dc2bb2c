"""Searches held against their controls: MARS²'s tree of two exact policies, and ETS with the embedded one.

`rolltree evidence mars2` and `rolltree evidence ets` run these. Same seed, same numbers.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from rolltree.compare.frozen import counted
from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Engine
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.random import mix
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.task.protocol import Item, Split, Task, Verdict
from rolltree.task.registry import load_task
from rolltree.tree import Forest, Node, Tree
from rolltree_papers.ets import StepSearch
from rolltree_papers.mars2 import Attempts
from studies.lab.claim import Measured
from studies.questions import Questions

LETTERS = Letters("abcdefgh!")
LENGTH, BLOCK = 4, 9
"""Letters of an answer; tokens of a question with its answer and the mark behind it."""


@dataclass(frozen=True, slots=True)
class Copying(Questions):
    """Write the four letters asked for, then "!"; the score is the share of letters that are right."""

    name: str = "copying"
    max_tokens: int = LENGTH + 1

    def asked(self, split: Split, seed: int, number: int) -> tuple[str, str]:
        """A random word."""
        key = mix(split, seed, number)
        word = "".join(LETTERS.alphabet[key >> (3 * i) & 7] for i in range(LENGTH))
        return word, word

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Letter by letter."""
        right = sum(a == b for a, b in zip(text, item.answer, strict=False)) / LENGTH
        return Verdict(right, answer=text.rstrip("!"))


def agent(first: float, keep: float, mend: float) -> TabularEngine:
    """A policy that gets a letter right with `first`; with an attempt in sight it keeps a right letter with `keep` and
    mends a wrong one with `mend`.
    """

    def distribution(prefix: tuple[int, ...]) -> list[float]:
        place = len(prefix) % BLOCK - LENGTH
        row = [0.0] * len(LETTERS.alphabet)
        if not 0 <= place < LENGTH:
            row[-1] = 1.0
            return row
        wanted = prefix[place]
        chance = first
        if len(prefix) > BLOCK:
            chance = keep if prefix[len(prefix) - BLOCK] == wanted else mend
        for letter in range(8):
            row[letter] = chance if letter == wanted else (1 - chance) / 7
        return row

    return TabularEngine(distribution, LETTERS)


def drafter() -> TabularEngine:
    """Good first answers; does not profit from earlier ones."""
    return agent(0.55, 0.55, 0.55)


def mender() -> TabularEngine:
    """Poor first answers; keeps what is right and mends half of what is wrong."""
    return agent(0.25, 0.95, 0.5)


def grown(strategy: TreeStrategy, seed: int, prompts: int, first: Engine, **peers: Engine) -> Forest:
    """A forest of copying trees."""
    task = Copying()
    items = islice(task.items("train", seed), prompts)
    return asyncio.run(grow(strategy, first, task, items, seed=seed, peers=peers))


def solved(forest: Iterable[Tree]) -> float:
    """Share of trees with an attempt that is wholly right."""
    return float(np.mean([any(n.scores.get("reward", 0.0) >= 1 for n in tree) for tree in forest]))


def mars2_arms(seed: int, prompts: int = 150, nodes: int = 8) -> dict[str, Forest]:
    """Forests of the Thompson tree and of its controls, all with the same number of attempts."""
    both = Attempts(nodes)
    wide = replace(both, choose="wide", agents=("policy",))
    alone = replace(both, agents=("policy",))
    return {
        "two agents, Thompson": grown(both, seed, prompts, drafter(), peer=mender()),
        "two agents by chance": grown(replace(both, choose="chance"), seed, prompts, drafter(), peer=mender()),
        "drafter, best of 8": grown(wide, seed, prompts, drafter()),
        "mender, best of 8": grown(wide, seed, prompts, mender()),
        "drafter alone, Thompson": grown(alone, seed, prompts, drafter()),
        "mender alone, Thompson": grown(alone, seed, prompts, mender()),
    }


def mars2(seed: int) -> Measured:
    """The Thompson tree of both against the best control of the method's card: either alone best of 8, or by chance."""
    arms = mars2_arms(seed)
    controls = ("drafter, best of 8", "mender, best of 8", "two agents by chance")
    forest = arms["two agents, Thompson"]
    acted = counted("mars2", forest, Budget())
    return Measured(solved(forest), max(solved(arms[name]) for name in controls), acted=acted)


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


def generation_by_score(forest: Forest) -> Mapping[int, float]:
    """Share of attempts made at the root after so many attempts: it should fall as better ones stand to build on."""
    wide: defaultdict[int, list[bool]] = defaultdict(list)
    for tree in forest:
        chosen = [event for event in tree.events if event.kind == "select"]
        for turn, event in enumerate(chosen):
            wide[turn].append(event.numbers["depth"] == 0)
    return {turn: float(np.mean(values)) for turn, values in wide.items()}
