"""Rolltree's rollouts as TRL's `rollout_func`.

TRL hands over each prompt as many times as a group has members and wants one row back for each, in order. A tree is
grown once per group and its leaves become the rows; see `TreeRollouts` for what happens when the numbers differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import isfinite, nan
from typing import Any

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Engine, token_codec
from rolltree.generate.independent import Independent
from rolltree.generate.random import mix
from rolltree.generate.runner import grow
from rolltree.generate.strategy import TreeStrategy
from rolltree.integrations.asking import bound, prompted
from rolltree.integrations.finish import finish
from rolltree.integrations.parts import portable
from rolltree.integrations.rows import Row, blank, credited, fit
from rolltree.integrations.trl.live import LiveEngine, check_settings, sampling_of
from rolltree.integrations.trl.prompts import TrlPrompts, blocks
from rolltree.integrations.trl.reward import ADVANTAGE, NUMBERS, REWARD
from rolltree.metrics.reward import outcomes
from rolltree.metrics.rollouts import Rollouts
from rolltree.recipe.check import check
from rolltree.recipe.recipe import Parts, Recipe
from rolltree.rollout.widths import at_width
from rolltree.task.protocol import AsksItself, Item, Task
from rolltree.training.start import task_of
from rolltree.tree import Forest
from rolltree.tree.table import table

Watch = Callable[[int, Forest], None]
"""Told the trainer's step and the trees that were grown for it."""


class TreeRollouts:
    """Grows trees with any strategy or recipe, from the weights TRL is training, and hands their leaves to TRL.

    Pass it as `rollout_func`, with `rolltree_reward` among the reward functions and a data set of the same `items`. A
    strategy that says how many leaves it makes is set to TRL's `num_generations`. Other numbers are fitted by one rule:
    of more leaves a random subset is handed over, rows that teach first; for missing or failed ones a blank row stands
    in that is masked and has no reward (None, never zero). Evaluation takes independent samples. The engine gets the
    trainer's weights before every generation, under the trainer's step as their version. `watch` sees every forest.
    """

    def __init__(
        self, recipe: str | Recipe | Parts | TreeStrategy, task: str | Task, items: Iterable[Item], *,
        watch: Watch | None = None,
    ) -> None:  # fmt: skip
        self.parts = portable(recipe, "TRL")
        self.task = task_of(task)
        self.prompts = TrlPrompts(items)
        self.watch = watch
        self._live = LiveEngine()
        self._calls = 0
        self._checked = False

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """TRL's contract: ids, log-probs and mask per row, and extra fields for reward functions."""
        training = bool(trainer.model.training)
        count = int(trainer.num_generations if training else trainer.num_generations_eval)
        check_settings(trainer)
        # An agent speaks the chat template by itself.
        template = None if isinstance(self.task, AsksItself) else trainer.processing_class
        items = [self.prompts.item(block, template) for block in blocks(prompts, count)]
        self._calls += 1
        rows, numbers = finish(self._rollouts(items, count, trainer, training))
        return {
            "prompt_ids": [row.prompt for row in rows], "completion_ids": [row.completion for row in rows],
            "logprobs": [row.logp for row in rows], "env_mask": [row.mask for row in rows],
            REWARD: [row.reward for row in rows], ADVANTAGE: [row.advantage for row in rows], NUMBERS: numbers,
        }  # fmt: skip

    async def _rollouts(
        self, items: Sequence[Item], count: int, trainer: Any, training: bool
    ) -> tuple[list[Row], dict[str, float]]:
        async with self._live.current(trainer) as engine:
            if not self._checked:
                self.task = bound(self.task, engine.codec)
                check(self.parts, engine, self.task)
                self._checked = True
            budget = Budget(name="rollouts for TRL")
            limit = min(self.task.max_tokens, int(trainer.max_completion_length))
            seed = mix(trainer.args.seed, "trl", self._calls, trainer.accelerator.process_index)
            # The same prompt may come twice in one batch; each time it is a group of its own.
            asked = [replace(item, id=f"{item.id}/{i}") for i, item in enumerate(await prompted(self.task, items))]
            forest = await grow(
                self._strategy(count) if training else Independent(count), engine, self.task, asked, seed=seed,
                budget=budget, max_tokens=limit, sampling=sampling_of(trainer),
            )  # fmt: skip
            if self.watch is not None:
                self.watch(int(trainer.state.global_step), forest)
            rows, numbers = self._fitted(forest, asked, engine, count, limit=limit, seed=seed)
            return rows, numbers | {"decoded": float(budget.spent.decoded), "version": float(engine.version)}

    def _strategy(self, count: int) -> TreeStrategy:
        return at_width(self.parts.strategy, count) or self.parts.strategy

    def _fitted(
        self, forest: Forest, items: Sequence[Item], engine: Engine, count: int, *, limit: int, seed: int
    ) -> tuple[list[Row], dict[str, float]]:
        """Exactly `count` rows for each item, and where they come from."""
        trees = list(forest)
        by_item: dict[str, list[Row]] = {item.id: [] for item in items}
        for tree, rows in zip(trees, credited(self.parts, trees, limit), strict=True):
            by_item[tree.item].extend(rows)
        out: list[Row] = []
        for item in items:
            chosen = fit(by_item[item.id], count, mix(seed, item.id))
            missing = count - len(chosen)
            prompt = engine.codec.encode(item.prompt)
            out += chosen + [blank(prompt, token_codec(engine, "TRL").eos_id, item.id)] * missing
        found = sum(len(rows) for rows in by_item.values())
        handed = sum(row.reward is not None for row in out)
        seen = outcomes(Rollouts(table(forest)))
        told = {"outcome": seen.get("reward/mean", nan), "solved": seen.get("reward/solved", nan)}
        return out, {name: value for name, value in told.items() if isfinite(value)} | {
            "rows": float(len(out)), "blank_rows": float(len(out) - handed), "surplus_leaves": float(found - handed),
            "idle_rows": float(sum(row.reward is not None and not row.loss_mask for row in out)),
            "failed_leaves": seen.get("rollout/failed", 0.0),
        }  # fmt: skip
