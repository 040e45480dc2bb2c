"""A rescue chain for dead prompts: asked to split the question, then to look at the wrong answers (Cog-Rethinker)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rolltree.control.brief import brief
from rolltree.control.corpus import Corpus
from rolltree.control.order import ControlError, Delivery, Order, Prompt
from rolltree.control.plan import Plan, Step
from rolltree.tree.values import storable

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
