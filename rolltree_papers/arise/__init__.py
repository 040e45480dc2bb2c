"""ARISE: skills that a policy concludes from what it solved, and is shown again (arXiv 2603.16060)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any, ClassVar, cast

import numpy as np

from rolltree.control.brief import brief
from rolltree.control.order import ControlError, Delivery, Order, Prompt, Written
from rolltree.control.plan import Plan, Step
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed, live_leaves
from rolltree.generate.independent import Independent
from rolltree.knobs.varying import Knob
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree import Tree
from rolltree.tree.store.values import storable

# ARISE's library of skills in two tiers: a cache that is chosen from, and a reservoir from which it is refilled.

FIELDS = ("skill_name", "problem_type", "key_insight", "method", "check")
"""What a document says of its skill."""


@storable
@dataclass(slots=True)
class Skill:
    """One document."""

    name: str
    text: str
    utility: float = 0.0
    """A running mean of what rollouts earned with it, from how its first trial went."""
    uses: int = 0
    """Groups it was shown to."""


@storable
@dataclass(slots=True)
class Library:
    """Skills in use, and those that were."""

    cache: list[Skill] = field(default_factory=list[Skill])
    reservoir: list[Skill] = field(default_factory=list[Skill])

    def update(self, name: str, reward: float, keep: float = 0.9) -> None:
        """ū ← keep · ū + (1 − keep) · R of a group that was shown the skill."""
        for skill in self.cache:
            if skill.name == name:
                skill.utility = keep * skill.utility + (1 - keep) * float(reward)
                skill.uses += 1

    def add(self, skill: Skill) -> bool:
        """Take a new one into the cache; a name that stands is refused."""
        if any(skill.name == known.name for known in (*self.cache, *self.reservoir)):
            return False
        self.cache.append(skill)
        return True

    def settle(self, cache: int, reservoir: int) -> None:
        """In the published order: the lowest leave a cache that is too full, the best of the reservoir takes the place
        of a worse one, and what was never used goes where it is below the reservoir's 10th percentile."""
        while len(self.cache) > cache:
            self.reservoir.append(self.cache.pop(_lowest(self.cache)))
        if self.cache and self.reservoir:
            worst = _lowest(self.cache)
            best = max(range(len(self.reservoir)), key=lambda i: self.reservoir[i].utility)
            if self.reservoir[best].utility > self.cache[worst].utility:
                self.cache[worst], self.reservoir[best] = self.reservoir[best], self.cache[worst]
        if self.reservoir:
            least = float(np.percentile([skill.utility for skill in self.reservoir], 10))
            self.reservoir = [s for s in self.reservoir if s.uses or s.utility >= least]
        while len(self.reservoir) > reservoir:
            del self.reservoir[_lowest(self.reservoir)]


def chances(scores: Sequence[float], sigma: float) -> list[float]:
    """Softmax of the scores over `sigma`."""
    top = max(scores)
    raised = [math.exp((s - top) / sigma) for s in scores]
    return [r / sum(raised) for r in raised]


def first_worth(unaided: Sequence[float], tried: float, correct: float = 0.5) -> float:
    """What a new skill begins with: its one trial beside the group it was concluded from.

    Wrong where some were right without it: −1. Wrong where none were: 0. Right where some were: 0.5, where none: 1.
    """
    known = any(r > correct for r in unaided)
    if tried > correct:
        return 0.5 if known else 1.0
    return -1.0 if known else 0.0


def read(text: str, most: int) -> Skill | None:
    """The document that a text holds, as one line of at most `most` characters; None where it is none.

    It must hold a JSON object, with all fields, none of them empty, and fit (four stages; which ones the paper takes is
    reconstructed).
    """
    found = re.search(r"\{.*\}", text, re.DOTALL)
    try:
        made: Any = json.loads(found.group()) if found else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(made, dict):
        return None
    told = cast("dict[str, Any]", made)
    values = [_line(told.get(name)) for name in FIELDS]
    line = f"{values[0]}: {' '.join(values[1:])}"
    return Skill(values[0], line) if all(values) and len(line) <= most else None


def _line(value: Any) -> str:
    parts = cast("list[Any]", value) if isinstance(value, list) else [value]
    return " ".join(" ".join(p.split()) for p in parts if isinstance(p, str)).strip()


def _lowest(skills: Sequence[Skill]) -> int:
    return min(range(len(skills)), key=lambda i: skills[i].utility)


# Skills that the policy concludes from its own successes, chosen by how likely it finds them (ARISE).

SKILLED = "skilled"
"""Arm of the groups that are shown a skill, and the score of their leaves: 1."""

CONCLUDE = (
    "{prompt}\nSolved before:\n{traces}\nWrite a skill for such questions as one JSON object with skill_name, "
    "problem_type, key_insight, method (a list of 2 or 3 steps) and check.\n"
)


@storable
@dataclass(slots=True)
class AriseState:
    """The run's own library."""

    library: Library


@dataclass(frozen=True, slots=True)
class Arise:
    """Before a group the cached documents are read below its prompt; the likeliest is shown to it, if it stands out.

    s_k is the mean log-prob of document k below the prompt, over as many tokens as a rollout may have (128 at most), p
    the softmax of s/sigma. Where no p reaches `gate` the
    group gets none, else a random one with chance `explore`, or the one with the highest p. From the successes of every
    group whose outcomes differ the policy concludes a new document, tries it once on the same prompt, and takes it into
    the library with the worth of that trial (`rolltree_papers.arise`). Where it writes no valid
    document its shortest success is one. Concluding and trying cost rollouts that are not trained on.

    A skill stands behind the prompt, where the paper has it in front; its tokens do not train. The utility of a skill
    moves by the mean of the group's rewards and bonuses (reconstructed: the paper's is per rollout).
    """

    name: ClassVar[str] = "arise"
    paper: ClassVar[str] = "2603.16060"
    needs: ClassVar[frozenset[str]] = frozenset({"one turn"})
    use: bool = True
    """Whether groups are shown skills; without, the library only fills."""
    cache: int = 10
    """Documents that are chosen from."""
    reservoir: int = 100
    """Documents that may come back."""
    sigma: float = 1.0
    """Temperature of the choice. Scores are means per token, so at 1 ten documents hardly ever reach the gate."""
    gate: float = 0.35
    """Least chance of the best document for any to be shown."""
    explore: float = 0.1
    """Chance of a random document where the gate is open."""
    bonus: float = 1.0
    """What a success with a skill earns beside its outcome, as far as utilities see it."""
    seeds: tuple[str, ...] = (
        "restate what is asked", "work step by step", "check with small numbers", "look for a pattern",
        "test the answer in the question",
    )  # fmt: skip
    """Documents that the library begins with."""
    shown: str = "\nSKILL: {skill}\n"
    """How a document stands behind a prompt."""
    conclude: str = CONCLUDE
    """Asks for a new document; "" = nobody is asked, and the shortest success is one."""
    most: int = 350
    """Characters of a document."""
    trace: int = 400
    """Characters of a success that a conclusion is drawn from."""
    tokens: int = 192
    """Tokens of a conclusion."""

    def __post_init__(self) -> None:
        asks = self.conclude or "{prompt}{traces}"
        if "{skill}" not in self.shown or "{prompt}" not in asks or "{traces}" not in asks:
            raise ControlError("arise: shown must hold {skill}, and conclude {prompt} and {traces}; write them in")
        if self.cache < 1 or self.sigma <= 0 or not 0 <= self.explore <= 1:
            raise ControlError(
                f"arise: cache={self.cache} must be 1 or more, sigma={self.sigma} above 0 and explore={self.explore} "
                "a share"
            )

    def start(self) -> AriseState:
        """The seeds."""
        return AriseState(Library([Skill(text, text[: self.most]) for text in self.seeds]))

    def plan(self, step: Step, state: AriseState) -> Plan:
        """Reading, then the round that trains, then conclusions, then their trials; then the library's own step."""
        prompts, library = step.take(), state.library
        chosen = (yield from self._chosen(step, prompts, library)) if self.use and library.cache else {}
        delivered = yield [self._group(prompt, chosen.get(prompt.place)) for prompt in prompts]
        for d in delivered:
            if (skill := chosen.get(d.order.prompt.place)) is not None and d.n:
                library.update(skill.name, mean(r + self.bonus * (r > 0.5) for r in d.rewards))
        mixed = [d for d in delivered if d.n > 1 and max(d.rewards) > min(d.rewards)]
        if mixed:
            said = (yield [self._asked(step, d) for d in mixed]) if self.conclude else [None] * len(mixed)
            found = [self._skill(d, s) for d, s in zip(mixed, said, strict=True)]
            tried = yield [self._trial(d.order.prompt, skill) for d, skill in zip(mixed, found, strict=True)]
            for d, skill, trial in zip(mixed, found, tried, strict=True):
                if trial.n:
                    library.add(replace(skill, utility=first_worth(d.rewards, trial.rewards[0])))
        library.settle(self.cache, self.reservoir)

    def _chosen(
        self, step: Step, prompts: Sequence[Prompt], library: Library
    ) -> Generator[Sequence[Order], Sequence[Delivery], dict[int, Skill]]:
        """Whom each prompt's place is shown; those of none are left out."""
        documents = tuple(Written((skill.text,)) for skill in library.cache)
        scored = yield [
            Order(p, given=documents, for_training=False, limit=128, why="how likely the skills are here")
            for p in prompts
        ]  # fmt: skip
        out: dict[int, Skill] = {}
        for d in scored:
            if len(d.logp) < len(library.cache):
                continue  # some could not be read, so which is the likeliest is not known
            p = chances(d.logp, self.sigma)
            if max(p) >= self.gate:
                at = int(step.rng.integers(len(p))) if step.rng.random() < self.explore else p.index(max(p))
                out[d.order.prompt.place] = library.cache[at]
        return out

    def _group(self, prompt: Prompt, skill: Skill | None) -> Order:
        if skill is None:
            return Order(prompt, texts=True)
        text = brief(self.shown.format(skill=skill.text), "skill")
        why = f"skill {skill.name!r}, utility {skill.utility:.2f}"
        return Order(prompt, arm=SKILLED, brief=text, leaf_marks={SKILLED: 1.0}, texts=True, why=why)

    def _asked(self, step: Step, d: Delivery) -> Order:
        """The conclusion from at most two successes, in a place of its own."""
        asks: Mapping[str, str] = {"prompt": d.order.prompt.item.prompt, "traces": "\n".join(self._traces(d)[:2])}
        (prompt,) = step.prompts_of([replace(d.order.prompt.item, prompt=self.conclude.format(**asks))])
        return Order(prompt, 1, "conclude", judged=False, for_training=False, limit=self.tokens, why="a new skill")

    def _traces(self, d: Delivery) -> list[str]:
        """What earned more than the group's mean, the shortest first."""
        better = [t for t, r in zip(d.texts, d.rewards, strict=True) if r > mean(d.rewards)]
        return sorted((text[: self.trace] for text in better), key=len)

    def _skill(self, d: Delivery, said: Delivery | None) -> Skill:
        made = read(said.texts[0], self.most) if said is not None and said.texts else None
        return made or Skill(f"as in {d.order.prompt.uid}", " ".join(self._traces(d)[0].split())[: self.most])

    def _trial(self, prompt: Prompt, skill: Skill) -> Order:
        text = brief(self.shown.format(skill=skill.text), "skill")
        return Order(prompt, 1, "trial", text, for_training=False, texts=True, why=f"skill {skill.name!r} tried")


# A bonus for what was solved with a skill in sight.


@dataclass(frozen=True, slots=True)
class SkillBonus:
    """Adds `bonus` to the outcome of a leaf that was shown a skill and is right (ARISE, arXiv 2603.16060).

    What the verifier said stays in `outcome`. Idempotent.
    """

    bonus: float = 1.0
    correct: float = 0.5
    """A larger outcome is right."""

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape every live leaf; `limit` is not used."""
        for leaf in live_leaves(tree):
            said = leaf.scores.setdefault("outcome", leaf.scores["reward"])
            if leaf.scores.get(SKILLED, 0.0) > 0:
                leaf.scores["reward"] = said + self.bonus * (said > self.correct)


@dataclass(frozen=True, slots=True)
class AriseRecipe:
    """DAPO's groups beside a library: for half a run it fills, then groups are shown the skill that is likeliest there.

    All rollouts of a group are shown the same skill, so its bonus doubles what every success of them earns, and an
    advantage that is divided by the deviation does not see it: what it moves are the utilities, by which the library
    keeps and drops. Where it differs: a skill stands behind the prompt; the four stages of a document's validation and
    that a group's mean moves a utility are reconstructed; texts are English, so the embedded policy concludes nothing
    but its own shortest successes. The first utility of a new skill compares its trial with the group it was concluded
    from, where the paper takes unaided rollouts: in the second phase that group may have been shown a skill. Only
    groups whose outcomes differ conclude one. At the published `sigma=1` the gate hardly opens with ten documents; the
    evidence is on simulated prompts with `sigma=0.1`, and supposes that documents of a prompt's own family are likelier
    there.
    """

    card: ClassVar[Card] = Card(
        "arise", "Skills concluded, kept and shown", "2603.16060", 2026,
        "better than GRPO and memories beside it on seven mathematics sets, by more on Omni-MATH (Qwen3-4B)",
        ("generate", "control", "replay"), "dapo",
        Evidence("prompts solved with the library's choice", "a random skill of the same library, or none", "higher",
                 0.02, seeds=5, check="rolltree_papers.arise.study:arise"),
        task="countdown", counter=Counter("budget/arm/skilled"),
    )  # fmt: skip
    group: int = 8
    use: Knob = "0, 1 at 50%"
    """Whether groups are shown skills: 0 in the first phase (500 steps in the paper), 1 in the second."""
    cache: int = 10
    """Skills that are chosen from."""
    reservoir: int = 100
    """Skills that may come back."""
    sigma: float = 1.0
    """Temperature of the choice, in nats per token."""
    gate: float = 0.35
    """Least chance of the best skill for any to be shown."""
    explore: float = 0.1
    """Chance of a random one instead."""
    bonus: float = 1.0
    """What a success with a skill earns beside its outcome."""
    conclude: str = CONCLUDE
    """Asks for a new skill: {prompt} and {traces} are filled in; "" = the shortest success is one."""
    clip: float = 0.2
    rounds: int = 4

    @at_start
    def build(self) -> Parts:
        """Independent rollouts, skills by the control, mixed groups only, group credit, clipped surrogate."""
        check_group("arise", self.group)
        return Parts(
            "arise", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="token",
            filters=(Mixed(),), shapers=(SkillBonus(self.bonus),), rounds=self.rounds,
            control=Arise(bool(self.use), self.cache, self.reservoir, self.sigma, self.gate, self.explore, self.bonus,
                          conclude=self.conclude),
        )  # fmt: skip
