"""Skills that the policy concludes from its own successes, chosen by how likely it finds them (ARISE)."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import ClassVar

from rolltree.control.brief import brief
from rolltree.control.methods.arise_library import Library, Skill, chances, first_worth, read
from rolltree.control.order import ControlError, Delivery, Order, Prompt, Written
from rolltree.control.plan import Plan, Step
from rolltree.tree.values import storable

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
    the library with the worth of that trial (`rolltree.control.methods.arise_library`). Where it writes no valid
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
