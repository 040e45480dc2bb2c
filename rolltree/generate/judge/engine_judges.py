"""Judges that ask an engine: by the likelihood of a text, or by what a role writes.

Options are judged by the likelihood of their text, not of a letter that names them: small models put most of the
probability on the first letter whatever stands there. What is asked is a side tree of the forest, whose nodes are the
options with their log-probs, or the verdicts that were written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rolltree.control.brief import brief
from rolltree.generate.judge.protocol import JudgeError, Opinion, Question, hand_of, number_in, word_in
from rolltree.generate.random import mix
from rolltree.generate.roles import About
from rolltree.tree.node import Array

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand


@dataclass(frozen=True, slots=True)
class Likelihood:
    """How likely each entry's text is after a question: exp of the mean log-prob of its tokens (or of their sum).

    `ask` is a text with {prompt} and {entries}, which stand for the item's prompt and for the entries as `entry` writes
    each. Without {entries} an entry's number does not depend on the others, nor on the order. With `options` what is
    judged is the probability of the first of them against the others, after `ask` with {entry}: a grade.
    """

    ask: str = "{prompt}"
    entry: str = "{text}\n"
    options: tuple[str, ...] = ()
    mean: bool = True
    """Whether texts of unequal length are compared per token."""
    letters: str = ""
    """For comparison: judge by the likelihood of a place's letter, which {letter} shows in `entry`, not of the text."""
    role: str = "judge"
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.options and ("{entry}" not in self.ask or len(self.options) < 2):
            raise JudgeError(
                f"a judge of the options {', '.join(self.options)} needs two or more of them and {{entry}} in what it "
                f"asks, which is {self.ask!r}"
            )

    @property
    def name(self) -> str:
        """Everything that could change a number."""
        return f"likelihood {self.role} {mix(self.ask, self.entry, *self.options, self.mean, self.letters):x}"

    def calls(self, size: int) -> int:
        """One."""
        return 1

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """All questions at once."""
        mine = hand_of(hand, self)
        answer = self._graded if self.options else self._compared
        return await asyncio.gather(*(answer(mine, question) for question in questions))

    async def _compared(self, hand: Hand, question: Question) -> Opinion:
        letters = self.letters or " " * len(question)
        if len(letters) < len(question):
            raise JudgeError(f"the judge {self.name!r} has {len(letters)} letters and is shown {len(question)} entries")
        places = list(zip(letters, question, strict=False))
        listed = "".join(self.entry.format(text=entry.text, letter=letter) for letter, entry in places)
        text = self.ask.format(prompt=prompt_of(hand), entries=listed, entry="")
        said = [letter if self.letters else entry.text for letter, entry in places]
        found = await likelihoods(hand, self.role, text, said, question, mean=self.mean)
        return None if found is None else [float(np.exp(x)) for x in found]

    async def _graded(self, hand: Hand, question: Question) -> Opinion:
        out: list[float] = []
        for entry in question:
            text = self.ask.format(prompt=prompt_of(hand), entries="", entry=entry.text)
            found = await likelihoods(hand, self.role, text, self.options, [entry], mean=self.mean)
            if found is None:
                return None
            out.append(float(np.exp(found[0] - np.logaddexp.reduce(found))))
        return out


@dataclass(frozen=True, slots=True)
class WrittenJudge:
    """A role writes a verdict, which is read strictly: what says nothing, or two things, is an abstention.

    With `words` the verdict names an entry by the word of its place, ("1", "2"); without, it is a number on `scale`
    about each entry by itself.
    """

    ask: str
    """A text with {prompt}, and {entries} (with `words`) or {entry}."""
    words: tuple[str, ...] = ()
    scale: tuple[float, float] = (0.0, 10.0)
    entry: str = "{word}) {text}\n"
    stop: tuple[str, ...] = ("\n",)
    max_tokens: int = 32
    temperature: float = 1.0
    role: str = "judge"
    want: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        place = "{entries}" if self.words else "{entry}"
        if place not in self.ask:
            raise JudgeError(f"what the judge asks, {self.ask!r}, does not show what is judged; write {place} in it")

    @property
    def name(self) -> str:
        """Everything that could change a verdict."""
        key = mix(self.ask, self.entry, *self.words, *self.stop, self.max_tokens, repr((self.scale, self.temperature)))
        return f"written {self.role} {key:x}"

    def calls(self, size: int) -> int:
        """One for a choice, one a grade."""
        return 1 if self.words else size

    async def __call__(
        self, hand: Hand | None, questions: Sequence[Question], rng: np.random.Generator
    ) -> Sequence[Opinion]:
        """All questions at once; asked again, it writes another verdict into the same side tree."""
        mine = hand_of(hand, self)
        answer = self._chosen if self.words else self._graded
        return await asyncio.gather(*(answer(mine, question) for question in questions))

    async def _chosen(self, hand: Hand, question: Question) -> Opinion:
        if len(question) > len(self.words):
            raise JudgeError(f"the judge {self.name!r} knows {len(self.words)} words and is shown {len(question)}")
        listed = "".join(
            self.entry.format(word=word, text=e.text) for word, e in zip(self.words, question, strict=False)
        )
        said = await self._say(hand, self.ask.format(prompt=prompt_of(hand), entries=listed), question)
        if said is None:
            return None
        chosen = word_in(said, self.words[: len(question)])
        return [float("nan") if chosen is None else float(i == chosen) for i in range(len(question))]

    async def _graded(self, hand: Hand, question: Question) -> Opinion:
        out: list[float] = []
        for entry in question:
            said = await self._say(hand, self.ask.format(prompt=prompt_of(hand), entry=entry.text), [entry])
            if said is None:
                return None
            out.append(number_in(said, *self.scale))
        return out

    async def _say(self, hand: Hand, text: str, question: Question) -> str | None:
        said = await hand.ask(
            self.role, brief(text), about=about(question), stop=self.stop, max_tokens=self.max_tokens,
            temperature=self.temperature,
        )  # fmt: skip
        return said[0].text if said else None


async def likelihoods(
    hand: Hand, role: str, text: str, options: Sequence[str], question: Question, *, mean: bool
) -> Array | None:
    """Log-probs of texts that follow a text, each a node of one side tree; None where one could not be read."""
    if not text:
        raise JudgeError(f"role {role!r} is asked nothing: what it reads is empty; give `ask` a text")
    side = hand.side(role, brief(text), about=about(question))
    known = {node.notes.get("option"): node for node in side.tree.children(side.tree.root)}
    out: list[float] = []
    for option in options:
        node = known.get(option)
        if node is None:
            node = await side.force(side.tree.root, option, role="policy", why="an option")
            if node is not None:
                node.notes["option"] = option
                if node.status == "open":
                    side.close(node, "stop", "an option")
        if node is None or node.logp is None or not len(node):
            return None
        out.append(float(node.logp.mean() if mean else node.logp.sum()))
    return np.asarray(out)


def about(question: Question) -> list[About]:
    """The nodes that a question shows."""
    return [About(entry.tree, entry.node) for entry in question]


def prompt_of(hand: Hand) -> str:
    """The prompt of the item that a hand's tree answers."""
    return hand.item.prompt
