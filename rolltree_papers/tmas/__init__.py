"""TMAS: multi-agent synergy for test-time scaling (arXiv 2605.10344)."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from rolltree.control.brief import Brief, Slot, brief
from rolltree.credit.registry import load_credit
from rolltree.generate.forkall import overlap
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.measured import MeasuredJudge, answer_of
from rolltree.generate.judge.protocol import Entry, Judge, Recorded
from rolltree.generate.judge.votes import Votes
from rolltree.generate.roles import About
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.tree import Tree

# Rounds of attempts over two banks: what was learned, to be used, and what was tried, to be avoided (TMAS).
#
# Banks belong to one prompt. What stands in a prompt is a slot of its brief with its sources, so that a run can show
# it, or take one of the two away and see what it was worth.

EXPERIENCE, GUIDELINES = "experience", "guidelines"


@dataclass(slots=True)
class Bank:
    """Records of one prompt, each with where it came from; a record like one that stands is not taken in."""

    same: float
    most: int
    records: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def add(self, text: str, source: str) -> bool:
        """Take a record in unless it is like another (Jaccard index of the words); the oldest make room."""
        words = set(text.split())
        if not text.strip() or any(overlap(words, set(t.split())) >= self.same for t, _ in self.records):
            return False
        self.records = [*self.records, (text, source)][-self.most :]
        return True

    def slot(self, name: str, template: str, before: bool) -> Slot | None:
        """The bank as a slot; None where it is empty."""
        if not self.records:
            return None
        text = "".join(template.format(record=text) for text, _ in self.records)
        return Slot(name, text, tuple(source for _, source in self.records), before=before)


@dataclass(frozen=True, slots=True)
class RecordWriter:
    """A role that writes a record about an attempt; without `ask` the attempt is the record."""

    role: str
    ask: str = ""
    """{prompt} and {text} are filled in."""
    shown: str = "{record}\n"
    """How a record stands in a prompt."""
    stop: tuple[str, ...] = ()
    max_tokens: int = 64

    async def record(self, hand: Hand, entry: Entry) -> str:
        """The record; "" where the role could not write it."""
        if not self.ask:
            return entry.text
        text = self.ask.format(prompt=hand.item.prompt, text=entry.text)
        said = await hand.ask(
            self.role, brief(text), about=[About(entry.tree, entry.node)], stop=self.stop, max_tokens=self.max_tokens
        )
        return said[0].text if said else ""


@dataclass(frozen=True, slots=True)
class Banked(Recorded):
    """TMAS's generator (arXiv 2605.10344): each attempt exploits what was learned, or explores beside what was tried.

    Every attempt of a round draws for itself: with `epsilon` it sees the guidelines, else the experience. A judge
    grades each attempt `judge.votes` times; what it grades at least `keep` enters the experience, every attempt the
    guidelines. The answer is the one with most grades in all (reconstructed).
    """

    n: int = 8
    rounds: int = 20
    epsilon: float = 0.2
    judge: Judge = field(default_factory=lambda: Votes(Likelihood(), 1, "given", "mean"))
    keep: float = 0.5
    experience: RecordWriter = field(default_factory=lambda: RecordWriter(EXPERIENCE))
    guideline: RecordWriter = field(default_factory=lambda: RecordWriter(GUIDELINES))
    same: float = 0.8
    """Jaccard index of the words from which two records are the same."""
    most: int = 8
    """Records of a bank."""
    before: bool = True
    """Banks stand in front of the prompt, or after it."""
    hide: tuple[str, ...] = ()
    """Slots that are taken away: "experience", "guidelines", the ablations."""
    record: frozenset[str] = frozenset()

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action."""
        return self.record | self.judge.want

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Round after round; then the answer."""
        learned, tried = Bank(self.same, self.most), Bank(self.same, self.most)
        everything: list[Entry] = []
        for number in range(self.rounds):
            entries = await self._round(hand, number, learned, tried)
            if not entries:
                break
            everything += entries
            known = [e.node.scores["reward"] for e in entries if "reward" in e.node.scores]
            solved = float(np.mean(known)) if known else None
            hand.event("select", None, f"round {number + 1} over two banks", experience=len(learned.records),
                       guidelines=len(tried.records), solved=solved)  # fmt: skip
        self._decide(hand, everything)

    def _decide(self, hand: Hand, entries: Sequence[Entry]) -> None:
        """The answer with most grades in all. Attempts stand in several trees, so ids of nodes tell no two apart."""
        grades: defaultdict[str, float] = defaultdict(float)
        for entry in entries:
            if (answer := answer_of(entry.node)) is not None:
                grades[answer] += entry.node.scores["value"]
        if not grades:
            hand.event("note", None, "no attempt has an answer to choose")
            return
        answer = max(grades, key=lambda a: grades[a])
        hand.tree.notes["answer"] = answer
        hand.event("note", None, f"the answer by grades is {answer!r}", grades=grades[answer], answers=len(grades))

    async def _round(self, hand: Hand, number: int, learned: Bank, tried: Bank) -> list[Entry]:
        """Attempts of a round, graded, and their records in the banks."""
        draws = [hand.rng.child("explore", number, i).uniform() < self.epsilon for i in range(self.n)]
        exploit, explore = self._brief(learned, EXPERIENCE), self._brief(tried, GUIDELINES)
        counts = [(exploit, self.n - sum(draws)), (explore, sum(draws))]
        if exploit == explore:  # nothing is shown, or everything is hidden: one group, in one tree
            counts = [(Brief(), self.n)]
        parts = await asyncio.gather(*(self._attempts(hand, brief, n, number) for brief, n in counts if n))
        entries = [entry for part in parts for entry in part]
        said = await hand.judge(self.judge, [[entry] for entry in entries], about=f"attempts of round {number + 1}")
        for entry, opinion in zip(entries, said, strict=True):
            if opinion is not None and not np.isnan(opinion[0]):
                entry.node.scores["value"] = opinion[0]
        good = [entry for entry in entries if entry.node.scores.get("value", -1.0) >= self.keep]
        await self._bank(hand, self.experience, good, learned)
        await self._bank(hand, self.guideline, entries, tried)
        return [entry for entry in entries if "value" in entry.node.scores]

    def _brief(self, bank: Bank, name: str) -> Brief:
        writer = self.experience if name == EXPERIENCE else self.guideline
        slot = None if name in self.hide else bank.slot(name, writer.shown, self.before)
        return Brief() if slot is None else Brief((slot,))

    async def _attempts(self, hand: Hand, shown: Brief, n: int, number: int) -> list[Entry]:
        """n attempts with this brief, in the main tree or in a side tree of their own."""
        here = hand
        if number:
            kind = shown.slots[0].name if shown.slots else "plain"
            here = hand.side(kind, shown, item=hand.item, turn=number)
        await Independent(n, want=self.want).grow_tree(here.tree, here)
        leaves = [leaf for leaf in here.tree.leaves() if leaf.status == "done" and leaf.parent is not None]
        return [Entry(here.tree, leaf, here.text(leaf)) for leaf in leaves]

    async def _bank(self, hand: Hand, writer: RecordWriter, entries: Sequence[Entry], bank: Bank) -> None:
        records = await asyncio.gather(*(writer.record(hand, entry) for entry in entries))
        for entry, text in zip(entries, records, strict=True):
            bank.add(text, About(entry.tree, entry.node).name)


@dataclass(frozen=True, slots=True)
class Tmas:
    """Rounds of attempts: most see what was learned, some see what was tried and are to do something else.

    `rolltree rollout tmas` runs it with a frozen policy; each later round stands in side trees of the forest, and what
    its prompts showed stands in their notes with its sources. The judge is the policy's own likelihood, or one of known
    errors ("measured"). Without `learn` and `avoid` an attempt is its own record. The paper's reports of verifications
    are condensed by a role of their own; here their mean is what counts. How the answer is chosen (most grades in all)
    is reconstructed. The hybrid reward of its training is not published in what could be read, and is left out. Its
    evidence has as many attempts and judge calls in both arms; what is asked is what the banks are worth.
    """

    card: ClassVar[Card] = Card(
        "tmas", "Multi-agent synergy for test-time scaling", "2605.10344", 2026,
        "keeps improving to iteration 19 where refinement plateaus (HLE-Math-100, IMO-AnswerBench-50)",
        ("generate", "filter", "replay"), "rtv",
        Evidence("right answers after four rounds", "the same attempts and judge without banks", "higher", 0.02,
                 seeds=5, check="rolltree_papers.tmas.study:tmas"),
        counter=Counter("budget/role/experience"),
    )  # fmt: skip
    attempts: int = 8
    """N: attempts of a round."""
    turns: int = 4
    """T: rounds (20 in the paper)."""
    ballots: int = 8
    """M: verifications of an attempt."""
    explore: float = 0.2
    """ε: chance that an attempt sees what was tried instead of what was learned."""
    keep: float = 0.5
    """Grade from which an attempt enters the experience."""
    same: float = 0.8
    """Jaccard index of the words from which two records are the same."""
    most: int = 8
    """Records of a bank."""
    judge: Literal["likelihood", "measured"] = "likelihood"
    """Who judges: the policy by the likelihood of the text, or a stand-in of known quality that sees the outcome."""
    noise: float = 0.3
    """Deviation of each verification of the measured judge."""
    learn: str = ""
    """Asks a role what an attempt teaches: {prompt} and {text} are filled in; "" = the attempt itself."""
    avoid: str = ""
    """Asks a role which way an attempt went; "" = the attempt itself."""
    learned: str = "{record}\n"
    """How a record of the experience stands in front of the prompt."""
    tried: str = "{record}\n"
    """How a guideline stands in front of the prompt."""
    hide: tuple[Literal["experience", "guidelines"], ...] = ()
    """Banks that are taken away from the prompts: the ablations."""

    def build(self) -> Parts:
        """Rounds over two banks; group credit and the clipped surrogate for those who train on the first round."""
        check_group("tmas", self.attempts)
        if self.turns < 1 or self.ballots < 1 or not 0 <= self.explore <= 1:
            raise RecipeError(
                f"tmas: turns={self.turns} and ballots={self.ballots} must be 1 or more, explore={self.explore} a share"
            )
        reader = Likelihood() if self.judge == "likelihood" else MeasuredJudge(noise=self.noise)
        votes = 1 if self.judge == "likelihood" else self.ballots
        banked = Banked(
            self.attempts, self.turns, self.explore, Votes(reader, votes, "given", "mean"), self.keep,
            RecordWriter(EXPERIENCE, self.learn, self.learned), RecordWriter(GUIDELINES, self.avoid, self.tried),
            self.same, self.most, hide=self.hide,
        )  # fmt: skip
        return Parts("tmas", banked, load_credit("grpo"), load_objective("clipped"), averaging="sequence")
