"""Frozen arms: recipes compared as ways to answer with a policy that nobody trains, at equal tokens over all roles.

An item may cost what the budget leaves for each; a method that wants more ends there, one that wants less has saved it.
Majority and the most confident of independent rollouts, with as many as the same tokens buy, stand beside every
comparison: a search that does not beat them has shown nothing.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rolltree.compare.arms import Arm
from rolltree.compare.runner import Spec, Tick
from rolltree.compare.trace import LabError, Trace, TraceTally
from rolltree.compare.train_runner import LoadTask, TrainRunner
from rolltree.control.ledger import Budget
from rolltree.generate.roles import is_side
from rolltree.metrics.step import grown_metrics
from rolltree.recipe.check import check
from rolltree.recipe.recipe import Parts
from rolltree.recipe.registry import counter_of
from rolltree.rollout.solve import SolvedItem, report, said_of_answers, solve
from rolltree.task.protocol import spoken_by
from rolltree.task.registry import load_task
from rolltree.task.sandbox.held_back import hold_back
from rolltree.training.peers import frozen_peers
from rolltree.training.step_metrics import RunTotals
from rolltree.tree import Forest, Tree
from rolltree.tree.store.atomic import new_file

# Whether a recipe's mechanism acted in trees that nobody trained on: its counter, as training would have logged it.


def counted(recipe: str, grown: Iterable[Tree], account: Budget) -> dict[str, float]:
    """The metric that the recipe's card names, of these trees and of what they spent; nothing where it names none."""
    counter = counter_of(recipe)
    if counter is None:
        return {}
    trees = [tree for tree in grown if not is_side(tree)]
    numbers = RunTotals().add(account) | grown_metrics(trees)
    return {counter.metric: numbers.get(counter.metric, counter.rest)}


MANY = 10_000
"""Rollouts that no budget of tokens buys: the baselines end at theirs."""
BASELINES = (
    Arm("majority", "best_of_n", (("final", "majority"), ("n", MANY))),
    Arm("most confident", "best_of_n", (("final", "best"), ("n", MANY))),
)


def with_baselines(chosen: Sequence[Arm]) -> tuple[Arm, ...]:
    """The arms with both baselines behind them."""
    return (*chosen, *(arm for arm in BASELINES if arm.label not in {a.label for a in chosen}))


@dataclass(frozen=True)
class FrozenRunner:
    """Answers held-out items with an arm's strategy. `load` lets a task that is in no registry be compared on."""

    load: LoadTask = load_task

    def check(self, spec: Spec) -> None:
        """Build everything once and see that the parts fit."""
        from rolltree.engine.choose import local_engine
        from rolltree.policy.load import load_model

        for knob, _ in spec.arm.knobs:
            if knob.partition(".")[0] in ("train", "optim", "control"):
                raise LabError(f"{knob} is for training, and frozen arms train nothing; leave it out")
        if spec.conditions.axis != "decoded":
            raise LabError(
                f"frozen arms are compared at equal tokens, not at equal {spec.conditions.axis}; leave out --axis"
            )
        if tokens_each(spec) < 1:
            raise LabError(
                f"a budget of {spec.conditions.budget:g} tokens leaves none for each of {spec.conditions.eval_items} "
                "items; raise --budget or lower --eval-items"
            )
        engine = local_engine(load_model(spec.conditions.model))
        try:
            task = self.load(spec.conditions.task, level=spec.conditions.level)
            check(self.parts(spec), engine, spoken_by(task, engine.codec))
        finally:
            asyncio.run(engine.close())

    def parts(self, spec: Spec) -> Parts:
        """The composition whose strategy answers."""
        return TrainRunner(self.load).parts(spec)

    def made_of(self, spec: Spec) -> Iterable[Any]:
        """This runner, which uses the engine, the strategy with its parts, and the task."""
        return self, self.parts(spec), self.load(spec.conditions.task, level=spec.conditions.level)

    def run(self, spec: Spec, folder: Path, tick: Tick) -> Trace:
        """Answer every item and say how many were right."""
        on, began = spec.conditions, time.monotonic()
        hold_back(folder)
        answers, moved = asyncio.run(self._answers(spec, tick))
        with new_file(folder / "answers.jsonl", overwrite=True) as sink:
            sink.writelines(f"{json.dumps(asdict(a))}\n" for a in sorted(answers, key=lambda a: a.index))
        numbers = report(answers, on.eval_items)
        if numbers["accuracy"] is None:
            raise LabError(f"{spec.arm.label!r}, seed {spec.seed}: {unjudged(answers, on.task)}")
        row: dict[str, float] = {
            # What it was given is where it stands; what it spent is told beside.
            "decoded": on.budget, "trained": 0.0, "seconds": time.monotonic() - began,
            "pass@1": float(numbers["accuracy"]), f"pass@{on.eval_samples}": float(numbers["any_right"]),
            "budget/decoded": float(numbers["decoded"]),
        } | moved  # fmt: skip
        tallies = {a.id: TraceTally(1, int(a.score >= 1)) for a in answers if a.score is not None}
        return Trace(spec.arm.label, spec.seed, (row,), tallies, str(folder))

    async def _answers(self, spec: Spec, tick: Tick) -> tuple[list[SolvedItem], dict[str, float]]:
        from rolltree.engine.choose import local_engine
        from rolltree.policy.load import load_model

        on, parts = spec.conditions, self.parts(spec)
        loaded = load_model(on.model)
        engine = local_engine(loaded)
        task = spoken_by(self.load(on.task, level=on.level), engine.codec)
        items = list(enumerate(itertools.islice(task.items("test", spec.seed), on.eval_items)))
        answers: list[SolvedItem] = []
        grown: list[Tree] = []
        account = Budget()

        def done(answer: SolvedItem, forest: Forest) -> None:
            answers.append(answer)
            grown.extend(forest)
            tick(on.budget * len(answers) / len(items), f"{spec.arm.label}, seed {spec.seed}")

        peers = frozen_peers(parts.peers, loaded)
        try:
            await solve(
                parts.strategy, engine, task, items, seed=spec.seed, tokens=tokens_each(spec), total=account,
                peers=peers, max_tokens=on.max_tokens, done=done,
            )  # fmt: skip
        finally:
            for each in (engine, *peers.values()):
                await each.close()
        if crashed := [a for a in answers if a.error]:
            raise LabError(
                f"{spec.arm.label!r} crashed on {len(crashed)} of {len(answers)} items; the first: {crashed[0].error}"
            )
        return answers, counted(spec.arm.recipe, grown, account)


def unjudged(answers: Sequence[SolvedItem], task: str) -> str:
    """Why no answer could be judged, and what helps."""
    if said := said_of_answers(answers):
        return f"nothing could be judged, because {said}; mend the task or the engine"
    if any(a.leaves for a in answers):
        return f"nothing could be judged: the {len(answers)} items of {task} have no answers; give some that have them"
    return f"nothing could be judged: no rollout of {len(answers)} items was finished; raise --budget"


def tokens_each(spec: Spec) -> int:
    """What an item may cost."""
    return int(spec.conditions.budget // spec.conditions.eval_items)
