"""The data sets of reasoning-gym as tasks, with their own questions, curricula and scoring.

Level 0 is a data set's default configuration; level n > 0 sets every attribute of its curriculum to n - 1, as far as
the attribute goes. Other knobs go to the data set's configuration. https://github.com/open-thought/reasoning-gym
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from itertools import count
from random import Random
from typing import Any

from rolltree.errors import RolltreeError, did_you_mean
from rolltree.task.gym_judge import judge_gym
from rolltree.task.items import SingleTurn, TaskError, digest, stream
from rolltree.task.judge import warn_where_open
from rolltree.task.protocol import Item, Split, Verdict

BLOCK = 256
"""Questions drawn from one data set seed; the next block takes the next seed."""


class GymMissingError(RolltreeError, ImportError):
    """reasoning-gym is not installed."""


def _library() -> Any:
    """reasoning-gym, or one sentence on how to get it."""
    try:
        import reasoning_gym
    except ImportError:
        message = "reasoning-gym:NAME needs the library reasoning-gym: pip install 'rolltree[reasoning-gym]'"
        raise GymMissingError(message) from None
    return reasoning_gym


def gym_names() -> tuple[str, ...]:
    """The data sets there are."""
    _library()
    from reasoning_gym.factory import DATASETS

    return tuple(sorted(DATASETS))


class ReasoningGym(SingleTurn):
    """One data set. The item's answer is the whole entry, which is what the data set's scoring asks for."""

    def __init__(self, dataset: str, level: int = 0, max_tokens: int = 1024, **knobs: Any) -> None:
        known = gym_names()
        if dataset not in known:
            way = did_you_mean(dataset, known) or f"known are {', '.join(known)}"
            raise TaskError(f"reasoning-gym has no data set {dataset!r}; {way}")
        self.name = f"reasoning-gym:{dataset}"
        self.level = level
        self.stop: tuple[str, ...] = ()
        self.max_tokens = max_tokens
        self.max_turns = 0
        self._dataset = dataset
        self._config = _config(dataset, level, knobs)
        self._block(0)  # a configuration that it refuses is refused here
        warn_where_open()

    def _block(self, seed: int) -> Any:
        """The data set under one seed."""
        config = {**self._config, "seed": seed, "size": BLOCK}
        try:
            return _library().create_dataset(self._dataset, **config)
        except (TypeError, AssertionError, ValueError) as error:
            raise TaskError(f"{self.name} refuses its configuration: {error}") from None

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Questions without end, split by their text."""
        entries = self._entries(seed)
        return stream(self.name, self.level, split, seed, partial(self._draw, entries))

    def _entries(self, seed: int) -> Iterator[tuple[int, int, dict[str, Any]]]:
        """(block seed, index, entry) of block after block."""
        rng = Random(f"{self.name}/{seed}")
        for _ in count():
            block = rng.randrange(2**31)
            dataset = self._block(block)
            for index in range(BLOCK):
                yield block, index, dataset[index]

    def _draw(self, entries: Iterator[tuple[int, int, dict[str, Any]]], rng: Random) -> tuple[str, Item]:
        """The next entry as an item."""
        block, index, entry = next(entries)
        question = str(entry["question"])
        meta = {"seed": block, "index": index}
        return question, Item(f"{self._dataset}-{digest(question)}", question, entry, self.level, meta)

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """The data set's own score of the text without surrounding blanks."""
        answer = text.strip()
        judged = await judge_gym(self._dataset, {**self._config, "seed": 0, "size": BLOCK}, item.answer, answer)
        if judged.fault:
            return Verdict(0.0, answer=answer or None, why=judged.fault)
        score = float(judged.told)
        why = "" if score == 1 else f"scored {score:.3g} by {self._dataset}"
        return Verdict(score, answer=answer or None, why=why)


def _config(dataset: str, level: int, knobs: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a level with knobs on top."""
    if level == 0:
        return knobs
    from reasoning_gym.factory import create_curriculum, has_curriculum

    if level < 0 or not has_curriculum(dataset):
        raise TaskError(f"reasoning-gym:{dataset} has no level {level}: use level 0, its default")
    curriculum = create_curriculum(dataset)
    for name, attribute in curriculum.attributes.items():
        curriculum.set_attr_level(name, min(level - 1, len(attribute.levels) - 1))
    config = asdict(curriculum.generate_configuration())
    return {key: value for key, value in config.items() if key not in ("seed", "size")} | knobs
