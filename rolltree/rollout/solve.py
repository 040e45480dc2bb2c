"""Answers with a frozen policy: any strategy, no learner, a budget of tokens for each item over all roles.

Items are answered side by side and each by itself, so an answer depends on the item, the method and the seed alone:
what is found again after a kill need not be made again, and what is made then is what would have been made.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rolltree.control.ledger import Budget, Limits
from rolltree.engine.protocol import Channel, Engine, Sampling, reads_text
from rolltree.generate.choose import choice
from rolltree.generate.runner import grow
from rolltree.generate.setting import first_of
from rolltree.generate.strategy import TreeStrategy
from rolltree.metrics.reward import FIRST_WAVE, LAST_WAVE, regression
from rolltree.rollout.underway import failures, told
from rolltree.task.protocol import Item, Task
from rolltree.tree import Forest, Node, Tree
from rolltree.visible import shortened


@dataclass(frozen=True, slots=True)
class SolvedItem:
    """What came of one item; a line of the answers' file."""

    id: str
    index: int
    """Its place among the items asked."""
    answer: str | None
    """In normal form; None = no rollout gave one."""
    text: str
    """The most valued rollout with that answer, without the prompt."""
    score: float | None
    """The verdict on the answer; None = nobody can say (an item without an answer), or there is none."""
    how: str
    """What chose it: the method, or "majority" where the method chooses nothing."""
    share: float
    """Share of the votes that it got."""
    leaves: int
    """Rollouts that were finished."""
    failed: int
    """Rollouts that broke: they count for nothing."""
    decoded: int
    """Tokens sampled for it over all roles, each prefix once."""
    prefilled: int
    env_steps: int
    judge_calls: int
    any_right: bool | None
    """Whether some finished rollout was right: what a perfect choice would have got."""
    operators: dict[str, int] = field(default_factory=dict[str, int])
    """How often each operator of the search wrote."""
    first: float | None = None
    """Share of right attempts in its first wave; None = the method makes no waves, or nobody knows."""
    last: float | None = None
    """The same in its last wave."""
    error: str = ""
    """Why growing its tree crashed; "" = it did not."""
    why: str = ""
    """What the first of its broken rollouts said; "" = none broke."""

    @property
    def lost(self) -> bool:
        """Whether nothing came of it because its tree crashed, or every rollout broke."""
        return bool(self.error) or (self.failed > 0 and self.leaves == 0)


async def solve(
    strategy: TreeStrategy,
    engine: Engine,
    task: Task,
    items: Sequence[tuple[int, Item]],
    *,
    seed: int = 0,
    tokens: int | None = None,
    total: Budget | None = None,
    sampling: Sampling | None = None,
    peers: Mapping[str, Engine] | None = None,
    roles: Mapping[str, Engine] | None = None,
    at_once: int = 16,
    max_tokens: int | None = None,
    done: Callable[[SolvedItem, Forest], None],
) -> None:
    """Answer items (each with its index), `at_once` of them side by side; `done` is told of each with its trees.

    `tokens` bounds what is decoded for an item by all roles together, `total` the whole run. `roles` are models that
    speak as a role (a judge, a thinker); every other role speaks with the engine. `max_tokens` bounds a path, as in
    `grow`.
    """
    run = total or Budget()
    todo = iter(items)

    async def worker() -> None:
        for index, item in todo:
            if run.remaining("decoded") < 1:
                return
            account = run.child(item.id, Limits(decoded=tokens))
            forest = await grow(
                strategy, engine, task, [item], seed=seed, budget=account, per_prompt=Limits(decoded=tokens),
                sampling=sampling, peers=peers, roles=roles, max_tokens=max_tokens,
            )  # fmt: skip
            done(answered(index, item, forest, engine.codec, account), forest)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(max(1, min(at_once, len(items)))):
                group.create_task(worker())
    except ExceptionGroup as broken:
        raise first_of(broken) from broken


def answered(index: int, item: Item, forest: Forest, channel: Channel, account: Budget) -> SolvedItem:
    """One item's answer from the trees grown for it."""
    tree = forest[item.id]
    made = choice(tree)
    known = [n.scores["reward"] for n in made.finished if "reward" in n.scores]
    spent = account.spent
    operators: dict[str, int] = {}
    for node in tree:
        if name := node.notes.get("operator"):
            operators[name] = operators.get(name, 0) + 1
    return SolvedItem(
        item.id, index, made.answer, "" if made.leaf is None else text_of(tree, made.leaf, channel),
        max((n.scores["reward"] for n in made.mine if "reward" in n.scores), default=None if not known else 0.0),
        made.how, len(made.mine) / len(made.voters) if made.voters else 0.0, len(made.finished),
        sum(n.status == "failed" for n in tree), spent.decoded, spent.prefilled, spent.env_steps, spent.judge_calls,
        None if not known else max(known) >= 1, operators, tree.root.scores.get(FIRST_WAVE),
        tree.root.scores.get(LAST_WAVE), str(tree.notes.get("failed", "")),
        failures([tree])[2],
    )  # fmt: skip


def text_of(tree: Tree, leaf: Node, channel: Channel) -> str:
    """What was written up to a leaf since the last prompt, special tokens left out; nothing where it is no text."""
    if not reads_text(channel):
        return ""
    path = tree.path(leaf)
    start = max(i for i, node in enumerate(path) if node.role == "prompt")
    return "".join(channel.decode(node.actions) for node in path[start + 1 :])


def said_of_answers(answers: Sequence[SolvedItem]) -> str:
    """One line about trees that crashed and rollouts that broke; empty where there are none."""
    crashed = [a.error for a in answers if a.error]
    broke = [a for a in answers if a.failed and not a.error]
    lines = [f"{len(crashed)} trees crashed; the first: {shortened(crashed[0])}"] if crashed else []
    if broke:
        failed = sum(a.failed for a in answers)
        lines.append(told(failed, failed + sum(a.leaves for a in answers), shortened(broke[0].why)))
    return "; ".join(lines)


def report(answers: Sequence[SolvedItem], asked: int, roles: Mapping[str, int] | None = None) -> dict[str, Any]:
    """The numbers of a run of answers."""
    judged = [a for a in answers if a.score is not None]
    known = [a for a in answers if a.any_right is not None]
    count = max(len(answers), 1)
    waves = [
        np.array([np.nan if x is None else x for x in row])
        for row in zip(*((a.first, a.last) for a in answers), strict=True)
    ]
    return {
        "items": asked,
        "answered": sum(a.answer is not None for a in answers),
        "accuracy": sum(a.score or 0.0 for a in judged) / len(judged) if judged else None,
        "any_right": sum(bool(a.any_right) for a in known) / len(known) if known else None,
        "decoded": sum(a.decoded for a in answers),
        "decoded_per_item": sum(a.decoded for a in answers) / count,
        "tokens_by_role": dict(roles or {}),
        "judge_calls": sum(a.judge_calls for a in answers),
        "env_steps": sum(a.env_steps for a in answers),
        "leaves_per_item": sum(a.leaves for a in answers) / count,
        "failed": sum(a.failed for a in answers),
        "crashed": sum(bool(a.error) for a in answers),
    } | {name.partition("/")[2]: rate for name, rate in (regression(*waves) if waves else {}).items()}
