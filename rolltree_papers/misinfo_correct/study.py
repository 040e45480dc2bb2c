"""Replies to a post, graded by five keyword classifiers: a reward for each reply against one mean for the batch."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Composite, weighed
from rolltree.filter.shaping import REPLY, Rewards
from studies.exact.written import Words, mean_of, shown, train
from studies.lab.claim import Measured

POSTS, PLACES = 4, 6
WORDS = (
    "please", "thanks", "idiot", "false", "debunked", "source", "study",
    "the", "is", "that", "so", "well", "post0", "post1", "post2", "post3",
)  # fmt: skip
SAYS = {"politeness": ("please", "thanks"), "refutation": ("false", "debunked"), "evidence": ("source", "study")}
"""Words that a classifier counts; "idiot" takes two off politeness."""
NAMED = tuple(SAYS)


class Posts:
    """A frozen start in which words are as frequent as their rank (Zipf), in an order drawn by the seed."""

    def __init__(self, seed: int) -> None:
        rank = np.random.default_rng([53, seed]).permutation(len(WORDS)) + 1.0
        self.word = (1 / rank) / (1 / rank).sum()
        self.start = np.tile(np.log(self.word), (POSTS, PLACES, 1))

    def graded(self, post: int, words: Words) -> Mapping[str, float]:
        """Sigmoids of counts, and the inverse perplexity under the start."""
        said = [WORDS[w] for w in words]
        counts = {name: sum(map(said.count, keys)) for name, keys in SAYS.items()}
        counts["politeness"] -= 2 * said.count("idiot")
        counts["relevance"] = said.count(f"post{post}")
        grades = {name: float(1 / (1 + np.exp(2.0 - 3.0 * count))) for name, count in counts.items()}
        return {**grades, "fluency": float(np.exp(np.log(self.word[list(words)]).mean()))}


def misinfo_correct(seed: int) -> Measured:
    """Mean of the three classifiers after training; the other curves are other weights with a reward for each reply."""
    world = Posts(seed)

    def good(post: int, words: Words) -> float:
        grades = world.graded(post, words)
        return float(np.mean([grades[name] for name in NAMED]))

    def arm(rewards: Rewards, credit: str, *, pooled: bool = False) -> tuple[list[float], float]:
        done = train(world.start, world.graded, (Composite(rewards),), load_credit(credit), mean_of(good, seed),
                     seed=seed, pooled=pooled)  # fmt: skip
        return done.curve, done.reshaped

    own, reshaped = arm(REPLY, "rloo")
    curves = {
        "a reward for each reply": own,
        "one mean for the batch": arm(REPLY, "raw", pooled=True)[0],
        "all weights 1": arm(weighed(REPLY, {"fluency": 1.0, "relevance": 1.0}), "rloo")[0],
        "without fluency": arm(weighed(REPLY, {"fluency": 0.0}), "rloo")[0],
        "fluency alone": arm(weighed(REPLY, dict.fromkeys((*NAMED, "relevance"), 0.0)), "rloo")[0],
    }
    return Measured(own[-1], curves["one mean for the batch"][-1], shown(curves), {"reward/reshaped": reshaped})
