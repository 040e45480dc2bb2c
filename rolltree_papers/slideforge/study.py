"""Decks of six words written from a brief, and an exact reader who has only the deck: can the brief be read back?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise

import numpy as np

from rolltree.filter.lengths import Shaper
from rolltree.filter.parts import Composite, weighed
from rolltree.filter.shaping import SLIDES, brief_recovered
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import Floats
from studies.exact.written import Words, draw, mean_of, shown, train
from studies.lab.claim import Measured

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


def covered(words: Words) -> Words:
    """A deck whose names of topics and readers nobody can read: what is left must say it."""
    return tuple(WORDS.index("so") if w < CONTENT or READER <= w < TONE else w for w in words)


@dataclass
class Compromises:
    """Counts groups whose best deck is neither the best by the brief alone nor by all other parts."""

    found: int = 0

    def __call__(self, tree: Tree, limit: int) -> None:
        """Behind the shaper that made the reward; `limit` is not used."""
        rest = [part for part in SLIDES.parts if part.name != "brief"]
        scores = [leaf.scores for leaf in tree.leaves()]
        brief, others = [s["brief"] for s in scores], [sum(p.weight * s[p.name] for p in rest) for s in scores]
        best = max(range(len(scores)), key=lambda i: scores[i]["reward"])
        self.found += brief[best] < max(brief) - 1e-9 and others[best] < max(others) - 1e-9


def slideforge(seed: int) -> Measured:
    """Brief read back with its names covered, which no part of the reward measures: the recipe's six parts against the
    better of the brief alone and the five others alone. The curves have the brief with names, and how much of decks is
    only names."""
    own = load_recipe("slideforge").build()
    others = {part.name: 0.0 for part in SLIDES.parts if part.name != "brief"}
    arms: dict[str, tuple[Shaper, ...]] = {
        "six parts": tuple(own.shapers),
        "the brief alone": (Composite(weighed(SLIDES, others)),),
        "without the brief": (Composite(weighed(SLIDES, {"brief": 0.0})),),
    }
    curves, read_back, names, met = dict[str, list[float]](), list[float](), list[float](), Compromises()
    for name, shapers in arms.items():
        world = Briefs(seed)
        measured = mean_of(lambda brief, words, w=world: w.recovered(brief, covered(words)), seed)
        watched = (*shapers, met) if name == "six parts" else shapers
        start = np.zeros((BRIEFS, PLACES, len(WORDS)))
        done = train(start, world.graded, watched, own.credit, measured, seed=seed)
        curves[name] = done.curve
        read_back.append(mean_of(world.recovered, seed)(done.policy))
        names.append(copied(done.policy, seed))
    by_arm = [float(i) for i in range(len(arms))]
    known = {**shown(curves), "with names, by arm": (by_arm, read_back), "share of names, by arm": (by_arm, names)}
    ends = [curve[-1] for curve in curves.values()]
    acted = {"groups whose best deck neither the brief nor the rest would choose": float(met.found)}
    return Measured(ends[0], max(ends[1:]), known, acted)
