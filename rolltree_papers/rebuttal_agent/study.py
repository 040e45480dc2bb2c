"""Rebuttals of a few words: a hidden concern, templates that fit every review, a grade by the policy's start."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Composite, weighed
from rolltree.filter.shaping import REBUTTAL, Rewards
from rolltree.generate.judge.backward import alike
from rolltree.tree.table import Floats
from studies.exact.written import Words, draw, mean_of, shown, train
from studies.lab.claim import Measured

CONCERNS, THOUGHT, SAID, EXAMPLES = 5, 2, 5, 20
"""Hidden concerns; words of the analysis behind its tag; words of the response; examples a concern the start has."""
MEETS = ("novelty", "baselines", "ablation", "clarity", "theory")
TEMPLATE = ("thank", "reviewer", "will", "revise", "paper")
REST = ("moon", "green", "seven", "often", "door", "<a>")
WORDS = (*MEETS, *TEMPLATE, *REST)
TAG = WORDS.index("<a>")


class Reviews:
    """A start made of examples that mostly thank, and what it thinks of texts: its own grade."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng([54, seed])
        counts = np.ones((CONCERNS, 1 + THOUGHT + SAID, len(WORDS)))
        for concern in range(CONCERNS):
            # Six in ten words of an example thank, two meet the concern, the rest are any.
            kind = np.full(len(WORDS), 0.2 / len(WORDS))
            kind[len(MEETS) : len(MEETS) + len(TEMPLATE)] += 0.6 / len(TEMPLATE)
            kind[concern] += 0.2
            for place in range(1 + THOUGHT + SAID):
                counts[concern, place] += rng.multinomial(EXAMPLES, kind)
            counts[concern, 0, TAG] += EXAMPLES
        self.start: Floats = np.log(counts / counts.sum(axis=-1, keepdims=True))

    def own_grade(self, concern: int, words: Words, first: int) -> float:
        """How likely this concern is against the others, given words from a place on, under the frozen start, and how
        likely the words are for it: the mean of both, so that it prefers what it would say itself."""
        logs = self.start[:, np.arange(first, first + len(words)), list(words)]
        total = logs.sum(axis=1)
        known = np.exp(total[concern] - np.logaddexp.reduce(total))
        return float(0.5 * known + 0.5 * np.exp(logs[concern].mean()))

    def graded(self, concern: int, words: Words) -> Mapping[str, float]:
        """The four parts."""
        said = words[1 + THOUGHT :]
        return {
            "format": float(words[0] == TAG and TAG not in words[1:]),
            "thinking": self.own_grade(concern, words[1 : 1 + THOUGHT], 1),
            "response": self.own_grade(concern, said, 1 + THOUGHT),
            "diversity": 1 - alike(text(said), " ".join(TEMPLATE)),
        }


def text(words: Words) -> str:
    """Words side by side, in the order of the list, as distance knows no order here."""
    return " ".join(WORDS[w] for w in sorted(words))


def met(concern: int, words: Words) -> float:
    """The judge that knows the truth: the response names the concern, no other one, and thanks in less than half."""
    said = words[1 + THOUGHT :]
    thanks = sum(WORDS[w] in TEMPLATE for w in said)
    return float(concern in said and not any(w < CONCERNS and w != concern for w in said) and 2 * thanks < len(said))


def variety(policy: Floats, seed: int) -> float:
    """Nats of the first word of responses, over all reviews."""
    rng = np.random.default_rng([55, seed])
    first = np.bincount([t[1 + THOUGHT] for p in policy for t in draw(p, 200, rng)], minlength=len(WORDS))
    share = first[first > 0] / first.sum()
    return float(-(share * np.log(share)).sum())


def rebuttal_agent(seed: int) -> Measured:
    """Responses that the truth accepts, with all four parts against three; other curves leave grades constant."""
    world = Reviews(seed)
    gated = weighed(REBUTTAL, {}, {"diversity": "format"})

    def constant(concern: int, words: Words) -> Mapping[str, float]:
        return {**world.graded(concern, words), "thinking": 0.5, "response": 0.5}

    def arm(rewards: Rewards, blind: bool = False) -> tuple[list[float], float, float]:
        done = train(world.start, constant if blind else world.graded, (Composite(rewards),), load_credit("grpo"),
                     mean_of(met, seed), seed=seed)  # fmt: skip
        return done.curve, done.reshaped, variety(done.policy, seed)

    plain = weighed(REBUTTAL, {"diversity": 0.0})
    arms = {
        "all four parts": arm(gated),
        "without distance": arm(plain),
        "distance not gated": arm(REBUTTAL),
        "constant grades": arm(gated, blind=True),
        "constant grades, without distance": arm(plain, blind=True),
    }
    curves = shown({name: curve for name, (curve, _, _) in arms.items()})
    order = [float(i) for i in range(len(arms))]
    curves["nats of the first word, by arm"] = (order, [nats for _, _, nats in arms.values()])
    own = arms["all four parts"]
    return Measured(own[0][-1], arms["without distance"][0][-1], curves, {"reward/reshaped": own[1]})
