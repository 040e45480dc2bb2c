"""Three kinds of tasks in one batch: numbers that rules check, texts with criteria of their own, calls of tools."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rolltree.recipe.registry import load_recipe
from rolltree_papers.tablegpt_r1 import StepsTaken
from studies.exact.written import Words, mean_of, shown, train
from studies.lab.claim import Measured

EACH, PLACES = 3, 6
"""Prompts of a kind; words of a text, of which the last is the answer."""
NUMBERS = ("one", "two", "three", "four", "five", "six")
ASKED = ("mean", "trend", "outlier", "unit", "source", "range")
"""What criteria ask for: two of them for each open prompt, and not a third."""
CALLS = ("open", "filter", "sum", "crash")
NEEDED = ("open", "sum")
"""Calls of tools, of which the last fails; an agentic answer is right behind the needed ones, in this order."""
GLOSS = ("clearly", "therefore", "insight")
"""What a judge without criteria likes to read."""
WORDS = (*NUMBERS, *ASKED, *CALLS, *GLOSS, "wait", "plot")
NOISE = 0.1
"""Deviation of a grade."""


class Tables:
    """Prompts drawn by the seed, each of one kind, and who may say what about a text."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng([58, seed])
        self.right = self.rng.integers(len(NUMBERS), size=3 * EACH)
        self.criteria = [self.rng.permutation(len(ASKED))[:3] + len(NUMBERS) for _ in range(3 * EACH)]
        self.start = np.zeros((3 * EACH, PLACES, len(WORDS)))

    def truth(self, prompt: int, words: Words) -> float:
        """Verifiable: the number. Open: criteria met, of three. Agentic: the number, found by calls in order."""
        number = float(words[-1] == self.right[prompt])
        if prompt < EACH:
            return number
        if prompt < 2 * EACH:
            first, second, never = self.criteria[prompt]
            return ((first in words) + (second in words) + (never not in words)) / 3
        said = iter(WORDS[w] for w in words)
        return number * float(all(call in said for call in NEEDED))

    def parts(self, prompt: int, words: Words) -> Mapping[str, float]:
        """The six parts: those of other kinds are 0; grades are noisy."""
        kind, said = prompt // EACH, [WORDS[w] for w in words]
        runs = [tuple(said[i : i + 2]) for i in range(PLACES - 1)]
        return {
            "rules": self.truth(prompt, words) if kind != 1 else 0.0,
            "criteria": self.grade(prompt, words, injected=True) if kind == 1 else 0.0,
            "steps": steps(said) if kind == 2 else 0.0,
            "fresh": len(set(runs)) / len(runs),
            "calm": 1 / max(said.count("wait"), 1),
            "no_plot": float("plot" not in said),
        }

    def grade(self, prompt: int, words: Words, *, injected: bool) -> float:
        """A noisy reading of what the prompt asks for, or without criteria of how well it sounds."""
        gloss = min(sum(WORDS[w] in GLOSS for w in words) / 3, 1.0)
        return (self.truth(prompt, words) if injected else gloss) + NOISE * float(self.rng.normal())

    def unrouted(self, prompt: int, words: Words, *, silent: bool = False) -> Mapping[str, float]:
        """The same six parts, each read off every text: rules look at its last word, a judge at all of it (with
        criteria where there are some; otherwise for its sound, or `silent`), and calls are paid whatever was asked."""
        kind, said = prompt // EACH, [WORDS[w] for w in words]
        rules = float(words[-1] == self.right[prompt]) if kind == 1 else self.truth(prompt, words)
        criteria = 0.0 if silent and kind != 1 else self.grade(prompt, words, injected=kind == 1)
        return {**self.parts(prompt, words), "rules": rules, "criteria": criteria, "steps": steps(said)}


def steps(said: list[str]) -> float:
    """What the calls of a text earn, by the recipe's own numbers."""
    worth, earned, seen = StepsTaken(), 0.0, set[str]()
    for word in said:
        if word in CALLS:
            earned += worth.failed if word == CALLS[-1] else worth.repeated if word in seen else worth.worked
            seen.add(word)
    return float(np.clip(earned, -worth.most, worth.most))


def tablegpt_r1(seed: int) -> Measured:
    """Truth after training with a route for each kind, against the same parts, criteria and steps among them, read off
    every text: the better of a judge that says something about every text and one that is silent without criteria.
    The curves have all arms, by kind too."""
    recipe = load_recipe("tablegpt_r1").build()
    routes, left = recipe.shapers[0], 0

    def arm(*, route: bool = True, silent: bool = False) -> tuple[list[float], list[float]]:
        world = Tables(seed)

        def graded(prompt: int, words: Words) -> Mapping[str, float]:
            nonlocal left
            parts = world.parts(prompt, words) if route else world.unrouted(prompt, words, silent=silent)
            left += route and parts["steps"] != steps([WORDS[w] for w in words])
            return parts

        done = train(world.start, graded, (routes,), recipe.credit, mean_of(world.truth, seed), seed=seed)
        kinds = [float(np.mean([mean_of(lambda _, t, p=p: world.truth(p, t), seed)(done.policy[p : p + 1])
                                for p in range(k * EACH, (k + 1) * EACH)])) for k in range(3)]  # fmt: skip
        return done.curve, kinds

    arms = {
        "routed": arm(),
        "unrouted": arm(route=False),
        "unrouted, silent without criteria": arm(route=False, silent=True),
    }
    curves = shown({name: curve for name, (curve, _) in arms.items()})
    for k, kind in enumerate(("verifiable", "open", "agentic")):
        curves[f"{kind}, by arm"] = ([float(i) for i in range(len(arms))], [found[k] for _, found in arms.values()])
    acted = {"texts whose calls earned nothing, as none were asked for": float(left)}
    ends = [curve[-1] for curve, _ in arms.values()]
    return Measured(ends[0], max(ends[1:]), curves, acted)
