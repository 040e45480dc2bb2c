"""Decks of six words written from a brief, and an exact reader who has only the deck: can the brief be read back?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import combinations, pairwise

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Composite
from rolltree.filter.rewards import SLIDES, Rewards, brief_recovered
from rolltree.filter.weights import weighed
from rolltree.lab.claim import Measured
from rolltree.tree.table import Floats
from studies.exact.written import Words, draw, mean_of, shown, train

BRIEFS, PLACES, NOISE = 6, 6, 0.1
"""Briefs to write for; words of a deck; deviation of the judges of looks."""
TOPICS = ("energy", "health", "cities", "oceans", "schools", "trade")
SAID = ("grid", "clinic", "street", "reef", "lesson", "port")
"""Content of each topic; one word in four belongs to its neighbour."""
READERS, TONES = ("children", "managers", "experts"), ("story", "chart", "proof")
WORDS = (*TOPICS, *SAID, *READERS, *TONES, "|", "and", "so")
BREAK = WORDS.index("|")
TOPIC, CONTENT, READER, TONE = 0, 6, 12, 15
PAIRS = tuple(combinations(range(len(TOPICS)), 2))
SMALL = 0.01


def author() -> tuple[Floats, Floats]:
    """What the reader believes of authors: log-probs of words given a pair of topics, and given who it is for.

    An author names what it writes about as often as it writes about it; a name is certain, content leads astray one
    time in four, a tone two times in ten.
    """
    topic, reader = np.full((len(PAIRS), len(WORDS)), SMALL), np.full((len(READERS), len(WORDS)), SMALL)
    for i, pair in enumerate(PAIRS):
        for one in pair:
            topic[i, TOPIC + one] += 0.5
            topic[i, CONTENT + one] += 0.75 * 0.5
            topic[i, CONTENT + (one + 1) % len(TOPICS)] += 0.25 * 0.5
    for i in range(len(READERS)):
        reader[i, READER + i] += 0.5
        reader[i, TONE : TONE + len(TONES)] += 0.05
        reader[i, TONE + i] += 0.35
    return np.log(topic / topic.sum(axis=1, keepdims=True)), np.log(reader / reader.sum(axis=1, keepdims=True))


LOG_TOPIC, LOG_READER = author()


@cache
def read(words: Words) -> Mapping[str, object]:
    """The most likely brief given the deck alone; of equally likely ones the first."""
    topics = [TOPICS[t] for t in PAIRS[int(LOG_TOPIC[:, words].sum(axis=1).argmax())]]
    reader = READERS[int(LOG_READER[:, words].sum(axis=1).argmax())]
    return {"topic": " ".join(topics), "audience": reader, "num_slides": 1 + words.count(BREAK), "key_themes": topics}


class Briefs:
    """Briefs drawn by the seed, and judges of a deck: all in [0, 1]."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([56, seed])
        self.briefs = [
            {"topic": " ".join(TOPICS[t] for t in PAIRS[int(self.rng.integers(len(PAIRS)))]),
             "audience": READERS[int(self.rng.integers(len(READERS)))], "num_slides": int(self.rng.integers(2, 5))}
            for _ in range(BRIEFS)
        ]  # fmt: skip

    def recovered(self, brief: int, words: Words) -> float:
        """The score of the brief that the exact reader read."""
        return brief_recovered(self.briefs[brief], read(words))

    def graded(self, brief: int, words: Words) -> Mapping[str, float]:
        """The six parts; content counts words that say something and are no names from the brief."""
        variety = len(set(words)) / PLACES
        looks = np.clip(variety + NOISE * self.rng.normal(size=2), 0, 1)
        ends = BREAK in (words[0], words[-1])
        return {
            "rules": float(1 <= words.count(BREAK) <= 3),
            "render": float(not ends and not any(a == b == BREAK for a, b in pairwise(words))),
            "content": sum(CONTENT <= w < READER or TONE <= w < BREAK for w in words) / (PLACES - 1),
            "look_html": float(looks[0]),
            "look_png": float(looks[1]),
            "brief": self.recovered(brief, words),
        }


def copied(policy: Floats, seed: int) -> float:
    """Share of words that are names of topics and readers."""
    rng = np.random.default_rng([57, seed])
    words = np.array([t for row in policy for t in draw(row, 200, rng)])
    return float(((words < CONTENT) | ((words >= READER) & (words < TONE))).mean())


def slideforge(seed: int) -> Measured:
    """Brief read back after training on six parts, against the other five; and how much of decks is only names."""

    def arm(rewards: Rewards) -> tuple[list[float], float, float]:
        world = Briefs(seed)
        start = np.zeros((BRIEFS, PLACES, len(WORDS)))
        done = train(start, world.graded, (Composite(rewards),), load_credit("grpo"), mean_of(world.recovered, seed),
                     seed=seed)  # fmt: skip
        return done.curve, done.reshaped, copied(done.policy, seed)

    others = {part.name: 0.0 for part in SLIDES.parts if part.name != "brief"}
    arms = {
        "six parts": arm(SLIDES),
        "without the brief": arm(weighed(SLIDES, {"brief": 0.0})),
        "the brief alone": arm(weighed(SLIDES, others)),
        "the brief and content": arm(weighed(SLIDES, {**others, "content": 2.0})),
    }
    curves = shown({name: curve for name, (curve, _, _) in arms.items()})
    curves["share of names, by arm"] = ([float(i) for i in range(len(arms))], [names for _, _, names in arms.values()])
    own = arms["six parts"]
    return Measured(own[0][-1], arms["without the brief"][0][-1], curves, {"reward/reshaped": own[1]})
