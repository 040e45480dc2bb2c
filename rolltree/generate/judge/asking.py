"""How a strategy asks a judge: paid from the budget, with a time limit and tries, and what broke counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rolltree.generate.judge.protocol import Judge, Opinion, Question, abstained, fitting
from rolltree.generate.patience import Gone, attempt
from rolltree.generate.random import lineage, mix

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


async def ask_judge(
    hand: Hand, judge: Judge, questions: Sequence[Question], about: str, rng: np.random.Generator | None
) -> list[Opinion]:
    """See `Hand.judge`. Its chance belongs to the judge and to what it reads, not to when it is asked."""
    cost = [judge.calls(len(question)) for question in questions]
    paid, calls = 0, 0
    while paid < len(questions) and (not cost[paid] or hand.budget.take("judge_calls", cost[paid])):
        calls += cost[paid]
        paid += 1
    if paid < len(questions):
        hand.event(
            "budget", None, f"{paid} of {len(questions)} questions about {about} could be paid", judge=judge.name
        )
    asked = questions[:paid]
    patience, drawn = hand.setting.patience, rng
    if drawn is None:
        drawn = hand.rng.child("judge", judge.name, _key(asked) if calls else 0).generator()
    state = drawn.bit_generator.state

    async def once() -> list[Opinion]:
        drawn.bit_generator.state = state  # a second try draws what the first one did
        return fitting(judge, asked, await judge(hand, asked, drawn))

    try:
        said = await attempt(f"judging {about}", once, patience, patience.judge_seconds, on_retry=hand.retried(None))
    except Gone as gone:
        hand.event("fail", None, str(gone), error=type(gone.cause).__name__, tries=gone.tries, judge=judge.name,
                   questions=len(asked))  # fmt: skip
        said = [None] * len(asked)
    else:
        if calls:
            hand.event("note", None, f"judged {about}", judge=judge.name, questions=len(asked), calls=calls,
                       abstained=sum(map(abstained, said)), failed=sum(one is None for one in said))  # fmt: skip
    return [*said, *([None] * (len(questions) - paid))]


def _key(questions: Sequence[Question]) -> int:
    """What is read, by its place in the trees."""
    return mix(*(
        name for question in questions for entry in question
        for name in (entry.tree.id, lineage(entry.tree, entry.node), len(entry.tree.prefix(entry.node)))
    ))  # fmt: skip
