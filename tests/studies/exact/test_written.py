"""What the worlds of slides, replies and rebuttals say about texts that are known."""

from __future__ import annotations

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Composite
from rolltree.filter.shaping import RewardPart, Rewards
from studies.exact.written import Words, train


def test_a_rewarded_word_is_written_more_often_and_a_mean_for_all_says_nothing_of_it() -> None:
    def graded(prompt: int, words: Words) -> dict[str, float]:
        return {"zero": float(words[0] == 0)}

    def first(policy: np.ndarray) -> float:
        return float(policy[0, 0, 0])

    shaper = Composite(Rewards((RewardPart("zero"),)))
    done = train(np.zeros((1, 2, 4)), graded, (shaper,), load_credit("rloo"), first, seed=0)
    assert done.curve[0] == 0.25
    assert done.curve[-1] > 0.9
    assert 0 < done.reshaped < 1


def ids(words: tuple[str, ...], said: str) -> Words:
    return tuple(words.index(word) for word in said.split())
