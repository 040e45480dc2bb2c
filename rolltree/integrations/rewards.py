"""Verifiers as reward functions of TRL and verl, and their reward functions as the verifiers of a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import isawaitable
from random import Random
from typing import Any, Literal

from rolltree.integrations.data import text_of
from rolltree.integrations.errors import AdaptError
from rolltree.integrations.finish import finish
from rolltree.task.foreign.parts import number
from rolltree.task.items import SingleTurn, TaskError, split_of
from rolltree.task.protocol import Item, Split, Task, Verdict

Reward = Callable[..., Any]


class RewardTask(SingleTurn):
    """Items judged by someone else's reward function: a single-turn task for any strategy or recipe.

    `signature` is TRL's `reward(prompts, completions, completion_ids, **columns)` or verl's
    `compute_score(data_source, solution_str, ground_truth, extra_info)`. A TRL function is asked about one rollout at a
    time and gets the item's `meta` as columns; one that compares rollouts with each other cannot be a verifier.
    """

    def __init__(
        self, name: str, items: Iterable[Item], reward: Reward, *, signature: Literal["trl", "verl"] = "trl",
        max_tokens: int = 1024, stop: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        if signature not in ("trl", "verl"):
            raise AdaptError(f"no reward signature {signature!r}: choose trl or verl")
        self.name, self.level, self.max_turns = name, 0, 0
        self.max_tokens, self.stop = max_tokens, stop
        self._items = tuple(items)
        self._reward, self._signature = reward, signature
        if not self._items:
            raise AdaptError(f"the task {name!r} has no items; give at least one")

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """All items of the split (a column `split`, else the prompt's hash) in a random order, again and again."""
        chosen = [item for item in self._items if item.meta.get("split", split_of(item.prompt)) == split]
        if not chosen:
            raise TaskError(f"{self.name} has no {split} items: give more items, or a column split")
        rng = Random(f"{self.name}/{split}/{seed}")
        while True:
            yield from rng.sample(chosen, len(chosen))

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """What the reward function says; numbers beside verl's `score` become named parts."""
        told = self._ask(item, text)
        if isawaitable(told):
            told = await told
        if self._signature == "trl":
            told = told[0] if isinstance(told, Sequence) and len(told) == 1 else told
        parts: dict[str, float] = {}
        if isinstance(told, Mapping):
            parts = {str(k): float(v) for k, v in told.items() if k != "score" and isinstance(v, (int, float))}
            told = told.get("score")
        return Verdict(number(told, f"the reward function of {self.name}", item.id), parts, text.strip() or None)

    def _ask(self, item: Item, text: str) -> Any:
        meta = item.meta
        if self._signature == "verl":
            return self._reward(
                data_source=meta.get("data_source", self.name), solution_str=text, ground_truth=item.answer,
                extra_info=meta.get("extra_info"),
            )  # fmt: skip
        columns = {key: [value] for key, value in {"answer": item.answer, **meta}.items()}
        return self._reward(prompts=[item.prompt], completions=[text], completion_ids=[None], **columns)


def trl_reward(task: Task, items: Iterable[Item]) -> Callable[..., list[float | None]]:
    """A task's verifier as a TRL reward function, for trainers that generate by themselves.

    None where the verifier crashed. Interactive tasks are refused: their outcome depends on more than the text; use
    `TreeRollouts`.
    """
    known = _by(task, items, "prompt")

    def reward(prompts: Sequence[Any], completions: Sequence[Any], **_: Any) -> list[float | None]:
        return [_judged(task, _find(known, text_of(prompt, "a prompt", _last)), text_of(completion, "a completion"))
                for prompt, completion in zip(prompts, completions, strict=True)]  # fmt: skip

    reward.__name__ = f"{task.name}_reward"
    return reward


def verl_reward(task: Task, items: Iterable[Item]) -> Callable[..., dict[str, float]]:
    """A task's verifier as verl's `compute_score`, for data files written by `write_verl` from the same items.

    A verifier that crashes is raised: verl has no word for a rollout without an outcome.
    """
    known = _by(task, items, "id")

    def compute_score(
        data_source: str, solution_str: str, ground_truth: Any, extra_info: Mapping[str, Any] | None = None, **_: Any
    ) -> dict[str, float]:
        item = _find(known, str((extra_info or {}).get("item")))
        verdict = finish(task.verify(item, None, solution_str))
        return {**verdict.parts, "score": verdict.score}

    return compute_score


def _by(task: Task, items: Iterable[Item], field: str) -> dict[str, Item]:
    if task.max_turns:
        raise AdaptError(
            f"the outcome of {task.name} depends on its environment, not on the text alone; grow its rollouts with "
            "TreeRollouts instead of a reward function"
        )
    return {getattr(item, field): item for item in items}


def _find(known: Mapping[str, Item], key: str) -> Item:
    if key not in known:
        raise AdaptError(f"{key[:80]!r} is none of the {len(known)} items the reward function was made from")
    return known[key]


def _judged(task: Task, item: Item, text: str) -> float | None:
    try:
        return finish(task.verify(item, None, text)).score
    except Exception:  # a verifier's crash, whatever it is, is no outcome
        return None


def _last(messages: Sequence[Mapping[str, Any]]) -> str:
    return str(messages[-1].get("content"))
