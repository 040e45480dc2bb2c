"""Search on digits at equal denoiser calls: `python -m rolltree_papers.dts.study --out results.jsonl`.

Each repeat is one prompt under one seed with 2,560 calls. The answer of every method is the best outcome it has found
and the outcome of the leaf it chose; one-step guesses of beam and rebase are booked as calls, and verdicts on them too.
`--exact` compares DTS's read-out with importance resampling of independent paths on a chain of text whose target is
known (total variation distance at equal rollouts).
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from rolltree.control.ledger import Limits
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.latents.engine import LatentEngine
from rolltree.latents.expected import Expected
from rolltree.latents.task import Digits
from rolltree.policy.load import load_model
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import Item, Verdict
from rolltree.testing.tiny import SpellTask
from rolltree.tree import Tree
from rolltree_papers.dts import CHOSEN, TreeSampling
from studies.lab.claim import Measured
from studies.latents.learn import interval
from studies.papers import installed

CALLS = 2560
PLACES = (1, 3, 5, 7)
AT_ONCE = 64
"""Prompts searched at once: their steps fill the engine's batches, and the numbers are the same for any."""


@dataclass(frozen=True)
class SearchStudy:
    """What to run."""

    out: Path
    repeats: int = 64
    rewards: tuple[str, ...] = ("symmetric",)
    exact: bool = False
    """Importance resampling against DTS on a chain with a known target, instead."""


def methods(calls: int) -> dict[str, tuple[TreeStrategy, int]]:
    """Every method with so many calls a prompt, of ten to a path, and the actions that these are.

    A path begins with a draw from the prior, which is an action and no call: a tree that is narrow at its root has
    fewer of them (counted in a trial run).
    """
    many = 10 * calls  # rounds that draw nothing cost nothing
    wide, narrow = calls + 166, calls + 34

    def search(alpha: float, **knobs: Any) -> TreeSampling:
        return TreeSampling(many, PLACES, explore=0.1, scale=20.0, alpha=alpha, **knobs)

    return {
        "best-of-n": (Independent(calls // 10), 2 * calls),
        "DTS*": (search(0.8), wide),
        "DTS*, mean backup": (search(0.8, backup="mean"), wide),
        "DTS* narrow": (search(0.5), narrow),
        "DTS* narrow, mean backup": (search(0.5, backup="mean"), narrow),
        **{name: (strategy, 2 * calls) for name, strategy in stepwise(calls).items()},
        "DTS narrow": (search(0.5, select="boltzmann"), narrow),
    }


def stepwise(calls: int) -> dict[str, TreeStrategy]:
    """Beam and REBASE with these calls, where the paper that has them (ETS) is installed.

    Three or four rounds of width · (3 steps and a guess): so wide that the calls are the same.
    """
    if not installed("ets"):
        return {}
    made: Any = load_recipe("ets", width=calls * 10 // 130).build().strategy
    beam = replace(made, step=3, delimiter="", scorer=Expected(), select="beam", meaning="hidden", final="best")
    return {"beam": beam, "rebase": replace(beam, select="rebase")}


async def run_method(name: str, reward: str, repeats: int) -> dict[str, Any]:
    """Best and chosen outcomes of all repeats."""
    best, chosen, calls, judged = list[float](), list[float](), list[float](), list[float]()
    strategy, actions = methods(CALLS)[name]
    for first in range(0, repeats, AT_ONCE):
        engine = LatentEngine(load_model("digits").model)
        asked = [Item(f"search-{i}", i % 10, i % 10) for i in range(first, min(first + AT_ONCE, repeats))]
        limits = Limits(decoded=actions)
        forest = await grow(strategy, engine, Digits(reward), asked, seed=1, per_prompt=limits)
        await engine.close()
        for tree in forest:
            scores = outcomes(tree)
            best.append(max(scores.values()))
            chosen.append(scores.get(int(tree.notes.get(CHOSEN, -1)), best[-1]))
            judged.append(sum(e.kind == "verify" or e.why.startswith("judged") for e in tree.events))
        calls += [engine.calls / len(asked)] * len(asked)
    return {"method": name, "reward": reward, "best": best, "chosen": chosen, "calls": float(np.mean(calls)),
            "judged": float(np.mean(judged))}  # fmt: skip


def outcomes(tree: Tree) -> Mapping[int, float]:
    """Outcome by leaf, of whole paths."""
    return {n.id: n.scores["reward"] for n in tree.leaves() if n.finish == "eos" and "reward" in n.scores}


def table(lines: list[dict[str, Any]]) -> str:
    """A row a method and reward."""
    rows = ["| reward | method | repeats | calls | verdicts | best found | chosen | best − best-of-n (paired) |",
            "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    plain = {line["reward"]: np.array(line["best"]) for line in lines if line["method"] == "best-of-n"}
    for line in lines:
        apart = np.array(line["best"]) - plain[line["reward"]] if line["reward"] in plain else np.zeros(0)
        rows.append(
            f"| {line['reward']} | {line['method']} | {len(line['best'])} | {line['calls']:.0f} | {line['judged']:.0f} "
            f"| {interval(line['best'])} | {interval(line['chosen'])} | "
            f"{interval(apart) if len(apart) and line['method'] != 'best-of-n' else ''} |"
        )
    return "\n".join(rows)


class Chain(SpellTask):
    """Three letters whose outcome is a table."""

    def value(self, text: str) -> float:
        """A fixed number in [0, 1] for each text; one first letter in four leads to high ones."""
        rng = np.random.default_rng([ord(c) for c in text] + [7])
        return float(0.6 * (text[0] == "d") + 0.4 * rng.random())

    async def verify(self, item: Item, state: object, text: str) -> Verdict:
        """Its outcome."""
        return Verdict(self.value(text), answer=text)


SCALE = 10.0


def exact(rollouts: int, repeats: int) -> dict[str, Any]:
    """Total variation distance to p·exp(λr)/Z: DTS's read-out, and importance weights of independent paths."""
    out: dict[str, list[float]] = {"DTS": [], "DTS narrow": [], "importance": []}
    for seed in range(repeats):
        out["DTS"].append(distance(TreeSampling(rollouts, (1, 2), SCALE, select="boltzmann"), seed)[0])
        narrow = TreeSampling(rollouts, (1, 2), SCALE, alpha=0.5, select="boltzmann")
        out["DTS narrow"].append(distance(narrow, seed)[0])
        out["importance"].append(distance(Independent(rollouts), seed)[0])
    return {"rollouts": rollouts, **{name: interval(values) for name, values in out.items()}}


def distance(strategy: TreeStrategy, seed: int) -> tuple[float, int]:
    """Of one tree's answers to the target, as it reads them out or by importance weights of independent paths; and how
    many nodes below its prompt have branches."""
    odds, task = [0.4, 0.3, 0.2, 0.1], Chain()
    texts = ["".join(t) for t in itertools.product("abcd", repeat=3)]
    prior = {t: math.prod(odds["abcd".index(c)] for c in t) for t in texts}
    mass = {t: prior[t] * math.exp(SCALE * task.value(t)) for t in texts}
    target = {t: m / sum(mass.values()) for t, m in mass.items()}
    engine = TabularEngine(lambda _: [*odds, 0.0], Letters("abcd$", 4), max_context=16)
    forest = asyncio.run(grow(strategy, engine, task, [Item("chain", "a", 1)], seed=seed, max_tokens=3))
    tree, share = next(iter(forest)), dict.fromkeys(texts, 0.0)
    if isinstance(strategy, Independent):
        told = [str(leaf.notes["answer"]) for leaf in tree.leaves()]
        weight = [math.exp(SCALE * task.value(t)) for t in told]
        for t, w in zip(told, weight, strict=True):
            share[t] += w / sum(weight)
    else:
        for t, w in read_out(tree).items():
            share[t] += w
    forks = sum(len(node.children) > 1 for node in tree if node is not tree.root)
    return sum(abs(share[t] - target[t]) for t in texts) / 2, forks


def read_out(tree: Tree) -> dict[str, float]:
    """The chance of each answer in a Boltzmann descent."""
    out: dict[str, float] = {}
    stack = [(tree.root, 1.0)]
    while stack:
        node, chance = stack.pop()
        known = [c for c in tree.children(node) if "value" in c.scores]
        if not known:
            out[str(node.notes["answer"])] = out.get(str(node.notes["answer"]), 0.0) + chance
            continue
        raw = np.array([SCALE * c.scores["value"] for c in known])
        share = np.exp(raw - raw.max())
        stack += [(c, chance * float(w)) for c, w in zip(known, share / share.sum(), strict=True)]
    return out


ROLLOUTS, REPEATS = 64, 4


def dts(seed: int) -> Measured:
    """Total variation distance to p·exp(λr)/Z: a Boltzmann tree's read-out, against as many independent paths weighed
    by exp(λr)."""
    seeds = range(REPEATS * seed, REPEATS * (seed + 1))
    ours = [distance(TreeSampling(ROLLOUTS, (1, 2), SCALE, select="boltzmann"), s) for s in seeds]
    paths = [distance(Independent(ROLLOUTS), s)[0] for s in seeds]
    forks = {"nodes with branches": float(np.mean([n for _, n in ours]))}
    return Measured(float(np.mean([d for d, _ in ours])), float(np.mean(paths)), acted=forks)


def main(study: SearchStudy) -> None:
    """Run what is missing; print the table of what stands."""
    if study.exact:
        for rollouts in (100, 300, 1000):
            told = exact(rollouts, 16)
            print(json.dumps(told))
            with study.out.open("a") as sink:
                sink.write(json.dumps(told) + "\n")
        return
    lines = [json.loads(line) for line in study.out.read_text().splitlines()] if study.out.exists() else []
    known = {(line["method"], line["reward"]) for line in lines}
    for reward, name in itertools.product(study.rewards, methods(CALLS)):
        if (name, reward) not in known:
            lines.append(asyncio.run(run_method(name, reward, study.repeats)))
            with study.out.open("a") as sink:
                sink.write(json.dumps(lines[-1]) + "\n")
    print(table(lines))


if __name__ == "__main__":
    main(tyro.cli(SearchStudy))
