"""Any strategy as verl's agent loop: one session grows one tree and returns its leaves as several outputs.

verl's trainer writes the last output's reward over those of all earlier ones, which is right where a session is one
rollout in several contexts and wrong for the leaves of a tree. `TreeOutput` therefore keeps its own scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal, cast

import torch

from rolltree.control.ledger import Budget
from rolltree.engine.protocol import Sampling, token_codec
from rolltree.generate.random import mix
from rolltree.generate.runner import grow
from rolltree.integrations.asking import prompted
from rolltree.integrations.data import distinct_items
from rolltree.integrations.errors import AdaptError
from rolltree.integrations.parts import portable
from rolltree.integrations.rows import Row, credited
from rolltree.integrations.verl.server import ServerEngine
from rolltree.policy.codec import HFCodec
from rolltree.recipe.check import check
from rolltree.recipe.registry import load_recipe
from rolltree.task.protocol import AsksItself, Item, Task, spoken_by
from rolltree.task.registry import load_task
from rolltree.tree import Forest

try:
    _loops: Any = import_module("verl.experimental.agent_loop.agent_loop")
except ImportError as error:
    raise AdaptError(f"TreeAgentLoop needs verl ({error}): pip install verl") from None
_Output: Any = _loops.AgentLoopOutput
_Base: Any = _loops.AgentLoopBase

Scores = Literal["outcome", "credit"]


class TreeOutput(_Output):
    """One leaf. `scores` has an entry per token of the response and is what the trainer gets as `rm_scores`."""

    scores: list[float]
    outcome: float

    def as_dict(self) -> dict[str, Any]:
        """verl's fields, with this leaf's own scores in place of whatever reward was written over them."""
        fields: dict[str, Any] = super().as_dict()
        own = {"outcome": fields.pop("outcome")}
        fields["rm_scores"] = torch.tensor(fields.pop("scores"), dtype=torch.float32)
        fields["extra_fields"] = {**fields["extra_fields"], "reward_extra_info": own}
        return fields


class TreeAgentLoop(_Base):
    """Name it in verl's `agent_loop_config_path` and set `rollout.n=1`: a tree brings its own leaves.

    `task` is a task's name and `items` how many of its prompts there are, as for `write_verl(distinct_items(task,
    items, seed=seed))`, which writes the data. With `scores="outcome"` each leaf's outcome stands at its last token,
    for any estimator that groups by prompt; with `"credit"` its tokens carry the advantages of the recipe's own credit,
    for `algorithm.adv_estimator=rolltree_given`. Leaves that failed become no output. `knobs` are the recipe's.
    """

    def __init__(
        self, *args: Any, recipe: str, task: str, items: int, seed: int = 0, scores: Scores = "outcome",
        knobs: Mapping[str, Any] | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(*args, **kwargs)
        if scores not in ("outcome", "credit"):
            raise AdaptError(f"TreeAgentLoop: scores={scores!r} must be 'outcome' or 'credit'")
        self._parts = portable(load_recipe(recipe, **dict(knobs or {})), "verl")
        self._task, self._items = _items(task, items, seed, self.tokenizer)
        self._seed, self._scores = seed, scores

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[TreeOutput]:
        """Grow a tree for one row of the data, through verl's server."""
        item, task, forest = self._item(kwargs), self._task, Forest()
        config = self.rollout_config
        context = int(config.prompt_length) + int(config.response_length)
        engine = ServerEngine(self.server_manager, HFCodec(self.tokenizer), context, _rest(sampling_params))
        check(self._parts, engine, task)
        limit = min(task.max_tokens, int(config.response_length))
        if isinstance(task, AsksItself):
            [item] = await prompted(task, [item])
            asked, room = len(token_codec(engine, "verl").encode(item.prompt)), int(config.prompt_length)
            if asked > room:
                raise AdaptError(
                    f"the agent's first call about {item.id!r} has {asked} tokens and rollout.prompt_length={room}; "
                    "raise data.max_prompt_length"
                )
        else:
            prompt = await self.ct_build_initial_tokens(list(kwargs["raw_prompt"]))
            forest.plant(item.id, prompt, task=task.name, item=item.id)
        await grow(
            self._parts.strategy, engine, task, [item], forest=forest, max_tokens=limit,
            seed=mix(self._seed, "verl", int(kwargs.get("global_steps") or 0), int(kwargs.get("session_id") or 0)),
            budget=Budget(name="rollouts for verl"), sampling=_sampling(sampling_params),
        )  # fmt: skip
        rows = [row for rows in credited(self._parts, list(forest), limit) for row in rows]
        return [self._output(row) for row in rows if _fits(row, config)]

    def _output(self, row: Row) -> TreeOutput:
        assert row.reward is not None
        outcome = [*[0.0] * (len(row.completion) - 1), row.reward]
        version = None if row.version < 0 else row.version
        return TreeOutput(
            prompt_ids=row.prompt, response_ids=row.completion, response_mask=row.mask, response_logprobs=row.logp,
            reward_score=row.reward, num_turns=2, metrics=_loops.AgentLoopMetrics(), outcome=row.reward,
            scores=row.advantage if self._scores == "credit" else outcome,
            extra_fields={"reward_extra_info": {"outcome": row.reward}, "min_global_steps": version,
                          "max_global_steps": version},
        )  # fmt: skip

    def _item(self, row: Mapping[str, Any]) -> Item:
        name = str(cast(Mapping[str, Any], row.get("extra_info") or {}).get("item"))
        if name not in self._items:
            raise AdaptError(
                f"the data asks for item {name!r}, which is none of the {len(self._items)} of {self._task.name}; write "
                "the data with write_verl(distinct_items(task, items, seed=seed), …) of the same task, items and seed"
            )
        return self._items[name]


@cache
def _items(task: str, count: int, seed: int, tokenizer: Any) -> tuple[Task, Mapping[str, Item]]:
    """A task and its items by id, once for all sessions of a worker."""
    made = load_task(task)
    found = {item.id: item for item in distinct_items(made, count, seed=seed)}
    return spoken_by(made, HFCodec(tokenizer)), found


def _fits(row: Row, config: Any) -> bool:
    """Whether verl has room for it; its batches have a fixed width."""
    return len(row.prompt) <= int(config.prompt_length) and len(row.completion) <= int(config.response_length)


def _sampling(told: Mapping[str, Any]) -> Sampling:
    return Sampling(
        temperature=float(told.get("temperature", 1.0)), top_p=float(told.get("top_p", 1.0)),
        top_k=max(int(told.get("top_k", -1)), 0),
    )  # fmt: skip


def _rest(told: Mapping[str, Any]) -> dict[str, Any]:
    """What verl asks for beyond our own settings, such as a repetition penalty."""
    return {key: value for key, value in told.items() if key not in ("temperature", "top_p", "top_k", "logprobs")}


__all__ = ["TreeAgentLoop", "TreeOutput"]
