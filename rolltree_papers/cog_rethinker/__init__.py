"""Cog-Rethinker: dead prompts decomposed, reflected on, and learned directly (arXiv 2510.15979)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from rolltree.control.brief import brief
from rolltree.control.corpus import Corpus
from rolltree.control.order import ControlError, Delivery, Order, Prompt
from rolltree.control.plan import Plan, Step
from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import load_credit, register
from rolltree.filter.groups import Mixed
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.store.values import storable
from rolltree.tree.table import Table

# A rescue chain for dead prompts: asked to split the question, then to look at the wrong answers (Cog-Rethinker).

RESCUED = "rescued"
"""Score of the leaves that a rescue wrote: 1."""


@storable
@dataclass(slots=True)
class Rescues:
    """What examples are taken from."""

    solved: Corpus = field(default_factory=Corpus)
    """Right answers to prompts."""
    rewritten: Corpus = field(default_factory=Corpus)
    """Those that reflection found, each behind its prompt and the wrong answers that it was shown."""


@dataclass(frozen=True, slots=True)
class CogRethinker:
    """Prompts that only fail are asked again to decompose, with solved examples; what still fails, to reflect, with
    examples of answers that were rewritten so.

    Both are asked in texts that the tree does not hold (`hidden`): what a rescue wrote is trained under the direct
    prompt, by the credit `rescued`. Examples are the most similar solved prompts by character trigrams (the paper:
    BM25); how many of each there are is reconstructed.
    """

    name: ClassVar[str] = "cog_rethinker"
    paper: ClassVar[str] = "2510.15979"
    needs: ClassVar[frozenset[str]] = frozenset({"one turn"})
    width: int = 0
    """Rollouts of a rescue; 0 = as many as failed."""
    decompose: str = "\nSplit the question into smaller ones, answer each, then answer the whole.\n"
    """What the first rescue is asked behind the prompt."""
    reflect: str = "\nThese answers are wrong:\n{wrong}\nFind the mistake and answer again.\n"
    """What the second one is asked."""
    example: str = "\nA solved question: {prompt}\n{answer}\n"
    """How an example is shown in either: of the second, {prompt} is the prompt with its wrong answers."""
    examples: int = 2
    """Examples of a rescue, as many as there are: solved prompts in the first, rewritten answers in the second."""
    wrong: int = 3
    """Wrong answers that the second one is shown."""

    def __post_init__(self) -> None:
        if "{wrong}" not in self.reflect:
            raise ControlError(f"cog_rethinker: reflect={self.reflect!r} has no place for answers; write {{wrong}} in")

    def start(self) -> Rescues:
        """No example yet."""
        return Rescues()

    def plan(self, step: Step, state: Rescues) -> Plan:
        """Direct, then decomposed, then reflected: each round asks only what is still dead."""
        delivered = yield [Order(prompt, texts=True) for prompt in step.take()]
        self._learn(delivered, state)
        wrong = {d.order.prompt.place: d.texts for d in delivered}
        dead = _dead(delivered)
        if not dead:
            return
        delivered = yield [self._rescue(d, "decompose", self._decomposed(d.order.prompt, state)) for d in dead]
        self._learn(delivered, state)
        dead = _dead(delivered)
        if dead:
            shown = {place: self._wrong(texts) for place, texts in wrong.items()}
            orders = [self._rescue(d, "reflect", self._reflected(d.order.prompt, shown, state)) for d in dead]
            delivered = yield orders
            self._learn(delivered, state)
            for d in delivered:
                if d.solved_text:
                    prompt = d.order.prompt
                    state.rewritten.add(prompt.uid, f"{prompt.item.prompt}\n{shown[prompt.place]}", d.solved_text)

    def _rescue(self, failed: Delivery, arm: str, text: str) -> Order:
        why = f"none of {failed.n} solved: {arm}"
        asked = brief(text, arm, hidden=True)
        return Order(failed.order.prompt, self.width or failed.n, arm, asked, leaf_marks={RESCUED: 1.0}, why=why)

    def _decomposed(self, prompt: Prompt, state: Rescues) -> str:
        return self._examples(prompt, state.solved) + self.decompose

    def _reflected(self, prompt: Prompt, shown: Mapping[int, str], state: Rescues) -> str:
        return self._examples(prompt, state.rewritten) + self.reflect.format(wrong=shown[prompt.place])

    def _examples(self, prompt: Prompt, corpus: Corpus) -> str:
        near = corpus.nearest(prompt, self.examples)
        return "".join(self.example.format(prompt=p, answer=a) for p, a in near)

    def _wrong(self, texts: Sequence[str]) -> str:
        return "\n".join(list(dict.fromkeys(texts))[: self.wrong])

    def _learn(self, delivered: Sequence[Delivery], state: Rescues) -> None:
        for d in delivered:
            if d.solved_text:
                state.solved.add(d.order.prompt.uid, d.order.prompt.item.prompt, d.solved_text)


def _dead(delivered: Sequence[Delivery]) -> list[Delivery]:
    return [d for d in delivered if d.n and max(d.rewards) <= 0]


# Answers that a rescue found, imitated beside a group that is compared without them.


@register("rescued", paper="Cog-Rethinker, arXiv:2510.15979", family="shaping")
@dataclass(frozen=True, slots=True)
class Rescued:
    """Leaves with a score `rescued`: A = weight where right, left out where wrong. The others: GRPO among themselves,
    and left out where all have the same outcome, so that what a rescued prompt failed thins nothing out.

    Under a ratio to the weights at the start of the step, ∇ of weight · π/π_old is weight · ∇ log π in the first
    update: supervised fine-tuning on the rescued answers. Later updates stop where the clip does.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    weight: float = 0.1
    """λ of the imitation (reconstructed: the paper's is not public)."""
    correct: float = 0.5
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every live leaf."""
        reward, group = outcomes(table), partition.leaf_groups(table, "tree")
        rescued = np.nan_to_num(table.score("rescued")[table.leaf]) > 0
        own = np.where(rescued, -1, group)
        plain = scaled(centred(reward, own, "mean"), reward, own, "std", ddof=self.ddof, eps=self.eps)
        right = rescued & (reward > self.correct)
        differs = partition.spread(-partition.lowest(-reward, own) - partition.lowest(reward, own), own) > 0
        return Advantage(leaf=np.where(rescued, self.weight * right, plain), counted=np.where(rescued, right, differs))


@dataclass(frozen=True, slots=True)
class CogRethinkerRecipe:
    """DAPO's groups; where all rollouts fail, a chain of two rescues, whose right answers are fine-tuned on.

    Rescued answers are trained under the direct prompt and never enter their group's mean. Prompts that are dead after
    the chain are dropped. The instructions are English: the embedded policy does not read them, so it wants a chat
    model. λ, the widths and the texts are (reconstructed), and so is that imitation is averaged together with the group
    and what a rescue wrote is taken as it is, where the paper rewrites it for the direct prompt. A hard step costs up
    to three times the rollouts, so compare it with `dapo` at equal tokens. Its evidence is on simulated prompts and
    supposes what a rescue adds to a logit: N(1.5, 1.5²), a draw for each prompt and rescue. Of 1,000 rollouts it makes
    37 to 42 prompts teach, where `dapo` has 31 to 35 with other prompts; where a rescue adds nothing on average 26 to
    30, and fewer where it harms.
    """

    card: ClassVar[Card] = Card(
        "cog_rethinker", "Hierarchical metacognitive RL", "2510.15979", 2025,
        "better than five baselines on nine mathematics sets (Qwen2.5-1.5B/7B base), with more usable prompts a step",
        ("generate", "control", "credit"), "dapo",
        Evidence("hard prompts that teach per 1,000 rollouts, where a rescue adds N(1.5, 1.5²) to a logit",
                 "dapo, which asks other prompts", "higher", 1.0, seeds=5,
                 check="rolltree_papers.cog_rethinker.study:cog_rethinker"),
        task="countdown", counter=Counter("budget/arm/decompose"),
    )  # fmt: skip
    group: int = 8
    weight: float = 0.1
    """λ: how much a rescued answer is imitated beside the group's own credit."""
    examples: int = 2
    """Solved examples that decomposition is shown."""
    clip_low: float = 0.2
    clip_high: float = 0.28
    rounds: int = 4

    def build(self) -> Parts:
        """Independent rollouts, the rescue chain, mixed groups only, imitation of what it found, asymmetric clip."""
        check_group("cog_rethinker", self.group)
        return Parts(
            "cog_rethinker", Independent(self.group), load_credit("rescued", weight=self.weight),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high), averaging="token",
            filters=(Mixed(),), rounds=self.rounds, control=CogRethinker(examples=self.examples),
        )  # fmt: skip
