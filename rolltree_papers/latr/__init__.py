"""LATR: lookahead tree-based rollouts (arXiv 2510.24302)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from rolltree.credit.registry import load_credit
from rolltree.engine.protocol import Engine
from rolltree.filter.groups import Mixed
from rolltree.generate.backfill import Backfill, backfill
from rolltree.generate.hand import Hand
from rolltree.generate.signals import SignalError, asked, features, similarity
from rolltree.generate.stems import alternative
from rolltree.generate.turns import play, proceed
from rolltree.knobs.varying import Knob
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree

# Look before you branch: greedy rows fork where the policy hesitates, and forks that change nothing are dropped.
#
# LATR (arXiv 2510.24302). All rows of a prompt advance together in token time. Rows are greedy, so a chunk can be
# written at once and its decisions taken afterwards in the order of their positions: at a position first the tests of
# age, which free places, then the forks that ask for them.

Ids = NDArray[np.int64]
Alike = Callable[[Ids, Ids], float]
"""How alike two runs of tokens are, in [0, 1]."""

PAPER = ((20, 0.1), (30, 0.15), (50, 0.25))
"""The published ages in tokens, and the share of a rollout's limit that each may be at most."""


@dataclass(frozen=True, slots=True)
class Look:
    """What decides about forks and rows.

    A token c other than the likeliest is a fork if P(c) > `absolute` and P(likeliest) − P(c) < `relative`. At each of
    `ages` tokens since its birth a row is dropped, with all that came from it, if its tokens are at least `alike` of
    its parent's at the same positions (1 − normalised edit distance; the paper drops distances below 0.4). No ages
    given = the paper's 20, 30 and 50, or 10, 15 and 25 % of the limit of a rollout's tokens where that is less.
    """

    top: int = 2
    absolute: float = 0.25
    relative: float = 0.15
    ages: tuple[int, ...] = ()
    alike: float = 0.6
    measure: Alike = similarity
    by: Literal["similarity", "chance"] = "similarity"
    """"chance" drops a row with probability `chance` at each age instead: the ablation at an equal rate."""
    chance: float = 0.0
    spare: str = ""
    """Characters at which a row is never judged: it keeps its place where its parent goes on with one of them."""

    @property
    def youngest(self) -> int:
        """The first age at which a row can be dropped: its first token differs, so it is at most 1 − 1/age alike."""
        if self.by == "chance" or self.measure is not similarity:
            return 1
        return next((age for age in range(2, 1_000) if 1 - 1 / age > self.alike + 1e-12), 1_000)

    def at(self, limit: int) -> Look:
        """With ages for rollouts of at most `limit` tokens where none were given."""
        if self.ages or self.alike >= 1:
            return self
        scaled = (min(age, round(share * limit)) for age, share in PAPER)
        return replace(self, ages=tuple(sorted({max(age, self.youngest) for age in scaled})))

    def check(self, limit: int) -> None:
        """Refuse ages at which no row can ever be dropped; `alike` = 1 is the way to judge nothing."""
        if self.by == "similarity" and self.alike >= 1:
            return
        for age in self.at(limit).ages:
            if age < self.youngest:
                raise SignalError(
                    f"an age of {age} never drops a row: its first token differs from its parent's, so it is at most "
                    f"{1 - 1 / age:.2f} alike and alike is {self.alike:g}; give ages of {self.youngest} or more, or "
                    "a smaller alike"
                )
            if age >= limit:
                raise SignalError(
                    f"an age of {age} is never reached: a rollout has at most {limit} tokens here; leave ages empty to "
                    "have them follow the limit, or give smaller ones (alike=1 judges nothing)"
                )


@dataclass(slots=True)
class LookRow:
    """One branch: where it was born, from whom, and what it says from the prompt on."""

    number: int
    leaf: Node
    birth: int
    """Tokens after the prompt at which it left its parent."""
    parent: LookRow | None
    tokens: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    """Everything after the prompt."""
    ended: bool = False
    """Whether greedy writing is over: an end, a turn handed over, a budget."""
    dropped: bool = False


@dataclass(slots=True)
class LookRows:
    """The rows of one prompt while it looks ahead."""

    hand: Hand
    look: Look
    room: int
    """Most rows alive at once."""
    rows: list[LookRow] = field(default_factory=list[LookRow])
    refused: int = 0
    """Forks that found no room."""
    judged: int = 0
    """Tests of a row against its parent."""

    @property
    def alive(self) -> list[LookRow]:
        """Rows that were not dropped."""
        return [row for row in self.rows if not row.dropped]

    @property
    def start(self) -> int:
        """Length of the prompt."""
        return len(self.hand.tree.root)

    async def write(self, row: LookRow, count: int) -> None:
        """Write on greedily and read what stands there now."""
        if row.ended or row.leaf.status != "open" or count <= 0:
            row.ended = row.ended or row.leaf.status != "open"
        else:
            grown = await self.hand.extend(
                row.leaf,
                max_tokens=count,
                temperature=0.0,
                want={f"top:{self.look.top}"},
                why="greedy" * (not row.birth),
            )
            row.leaf = grown[0] if grown else row.leaf
            row.ended = not grown or row.leaf.status != "open" or row.leaf.finish != "length"
        row.tokens = self.hand.tree.prefix(row.leaf)[self.start :].astype(np.int64)

    async def advance(self, since: int, until: int) -> None:
        """Bring all rows from position `since` to `until`, forking and dropping on the way."""
        async with asyncio.TaskGroup() as group:
            for row in self.alive:
                group.create_task(self.write(row, until - len(row.tokens)))
        for position in range(since, until):
            for row in self.alive:
                if not row.dropped and row.parent is not None and position - row.birth in self.look.ages:
                    self.judge(row, row.parent, position - row.birth)
            await self.fork_at(position, until)

    def judge(self, row: LookRow, parent: LookRow, age: int) -> None:
        """Drop a row that still says what its parent says; nothing is judged where either has ended."""
        window = slice(row.birth, row.birth + age)
        mine, theirs = row.tokens[window], parent.tokens[window]
        # One that ended with the window's last token has ended in it.
        if any(each.ended and len(each.tokens) <= window.stop for each in (row, parent)):
            return
        if len(mine) < age or len(theirs) < age or self.spared(theirs[:1]):
            return
        alike = self.look.measure(mine, theirs)
        self.judged += 1
        if self.look.by == "chance":
            if self.hand.rng_at(row.leaf, "drop", age).uniform() < self.look.chance:
                self.drop(row, f"by chance at age {age}", alike)
        elif alike > self.look.alike:
            self.drop(row, f"still like its parent at age {age}", alike)

    def spared(self, token: Ids) -> bool:
        """Whether a parent's token is one at which nothing is judged."""
        said = self.hand.codec.decode(token).strip() if self.look.spare else ""
        return bool(said) and said in self.look.spare

    def drop(self, row: LookRow, why: str, alike: float) -> None:
        """Drop a row and every row that left it or its descendants."""
        row.dropped = True
        self.hand.prune(row.leaf, why=why, alike=alike)
        for other in self.rows:
            if other.parent is row and not other.dropped:
                self.drop(other, why + ", with the row it left", alike)

    async def fork_at(self, position: int, until: int) -> None:
        """Open a row for each hesitation at a position while there is room: likelier ranks first, then older rows."""
        asked = [
            (rank, row, token, odds)
            for row in self.alive for rank, token, odds in self.hesitations(row, position)
        ]  # fmt: skip
        for _, row, token, odds in sorted(asked, key=lambda a: (a[0], a[1].number)):
            if len(self.alive) >= self.room:
                self.refused += 1
                continue
            leaf = await alternative(
                self.hand, row.leaf, self.start + position, token, why="two likely tokens", numbers={"p": odds}
            )
            if leaf is None or leaf.status == "failed":
                continue
            child = LookRow(len(self.rows), leaf, position, row)
            self.rows.append(child)
            child.ended = leaf.status != "open" or leaf.finish is not None
            await self.write(child, until - position - 1)

    def hesitations(self, row: LookRow, position: int) -> Iterator[tuple[int, int, float]]:
        """Forks a row asks for at a position it wrote itself: (rank, token, probability)."""
        before = self.start + position
        if position >= len(row.tokens) or (row.parent is not None and position <= row.birth):
            return
        for node in self.hand.tree.path(row.leaf):
            if before < len(node):
                break
            before -= len(node)
        else:
            return
        if node.top is None or node.forced:
            return
        order = np.argsort(-node.top.logp[before], kind="stable")
        odds = np.exp(node.top.logp[before][order].astype(np.float64))
        for rank in range(1, min(self.look.top, len(order))):
            if odds[rank] > self.look.absolute and odds[0] - odds[rank] < self.look.relative:
                yield rank, int(node.top.ids[before][order[rank]]), float(odds[rank])


# Lookahead trees: greedy rows and forced forks until the group is full, then ordinary sampling (LATR).


@dataclass(frozen=True, slots=True)
class Lookahead:
    """LATR's generator (arXiv 2510.24302).

    It looks ahead until a share `full` of the places is taken by rows old enough to have been judged, or for `most`
    tokens; every row then goes on as the policy samples. Greedy and forced tokens do not follow the policy's
    distribution: their `sampling_logprob` is NaN, and the forest's metrics count such leaves. Rows look ahead within
    the first turn.
    """

    leaves: int = 8
    share: float = 1.0
    """Part of the leaves that come from the tree; the rest is sampled independently (the paper lets it fall)."""
    look: Look = field(default_factory=Look)
    full: float = 0.98
    most: int = 512
    """Tokens after which it hands over in any case."""
    chunk: int = 16
    """Greedy tokens written at once; it hands over at the end of one."""
    record: frozenset[str] = frozenset()
    """Extras to record for the credit, of sampled tokens."""
    fill: Backfill = "restart"
    """Where missing leaves come from; "copy" as released."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every sampled action."""
        return self.record

    @property
    def needs(self) -> frozenset[str]:
        """The alternatives, greedy decoding, and what is recorded."""
        return features(asked(self.record, {f"top:{self.look.top}"})) | {"greedy"}

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse ages that never drop a row on this task."""
        self.look.check(task.max_tokens)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Look ahead, hand over, restart for what is missing."""
        room = round(self.share * self.leaves)
        async with asyncio.TaskGroup() as group:
            for _ in range(self.leaves - room):
                group.create_task(play(hand, tree.root, want=self.want))
            if room > 0:
                group.create_task(self._tree(hand, room))
        await backfill(hand, self.fill, self.leaves, want=self.want)

    async def _tree(self, hand: Hand, room: int) -> None:
        look = self.look.at(hand.limit)
        rows = LookRows(hand, look, room)
        rows.rows.append(LookRow(0, hand.tree.root, 0, None))
        position = 0
        while position < self.most:
            until = min(position + self.chunk, self.most)
            await rows.advance(position, until)
            position = until
            if self._over(rows, position):
                break
        alive = [row for row in rows.alive if row.leaf.parent is not None]
        why = f"{len(alive)} of {room} rows after {position} tokens, {rows.judged} tests at ages {look.ages}"
        hand.event(
            "select", None, why, rows=len(alive), refused=rows.refused, position=position, judged=rows.judged,
            ages=list(look.ages),
        )  # fmt: skip
        async with asyncio.TaskGroup() as group:
            for row in alive:
                group.create_task(proceed(hand, row.leaf, want=self.want))

    def _over(self, rows: LookRows, position: int) -> bool:
        """Whether nobody writes greedily any more, or the rows are many and old enough."""
        alive = rows.alive
        if all(row.ended for row in alive):
            return True
        young = any(
            row.parent is not None and not row.ended and position - row.birth <= max(rows.look.ages, default=0)
            for row in alive
        )
        return len(alive) >= self.full * rows.room and not young


@dataclass(frozen=True, slots=True)
class Latr:
    """Groups whose members differ: rows fork where two tokens are likely, and forks that re-converge are dropped.

    The update is GRPO's (`filtered` adds DAPO's mixed groups). Thresholds are those of the Countdown scripts; the
    mathematics scripts swap them (0.15, 0.25) and test by suffixes and ROUGE-L instead of edit distance. `ages` are in
    tokens; left empty they are the paper's 20, 30 and 50, or 10, 15 and 25 % of the task's limit where that is less,
    and ages that can never drop a row are refused. Released code judges no row whose parent goes on with a digit or a
    sign (`spare="+-*/\\<>=()[]{}_^&%$0123456789"`); on countdown and arithmetic every token is one, so nothing would
    ever be dropped, and the default spares none. Rows are looked at every `chunk` tokens. The published group is
    filled up with copies (`fill="copy"`); here with fresh rollouts. `share` and `full` fall over
    training: `share` by the Countdown script's stairs, whose last, 0 at 200, is independent sampling, `full` by 0.05
    over its 500 steps. Its KL weight of 0.01 is `kl`, off by default. `random_prune` > 0 drops rows by chance
    instead of similarity: the control at an equal rate.
    """

    card: ClassVar[Card] = Card(
        "latr", "Lookahead tree-based rollouts", "2510.24302", 2025,
        "Countdown from 65.9 to 70.9 (GRPO) and 70.7 to 74.7 (DAPO) with Qwen2.5-3B; 6.9 unique answers of 8, not 6.3",
        ("generate", "control"), "grpo", Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6),
        counter=Counter("rollout/dropped/pruned"),
    )  # fmt: skip
    leaves: int = 8
    share: Knob = "1, 0.75 at 10, 0.5 at 20, 0.25 at 80, 0 at 200"
    """η: share of the group that comes from the tree; the rest is independent."""
    absolute: float = 0.25
    """Probability that a token other than the likeliest must exceed to make a fork."""
    relative: float = 0.15
    """Largest distance of its probability from the likeliest token's."""
    ages: tuple[int, ...] = ()
    """Tokens after a fork at which rows are compared; empty = the paper's, or shares of a short limit."""
    alike: float = 0.6
    """Likeness from which a row counts as having converged again and is dropped."""
    random_prune: float = 0.0
    """Chance of dropping a row instead of comparing; 0 = compare."""
    spare: str = ""
    """Characters at which a row is never judged: it keeps its place where its parent goes on with one of them."""
    full: Knob = "0.98->0.93 over 500"
    """Share of the places that must be taken before sampling begins."""
    most: int = 512
    """Tokens after which it hands over in any case."""
    chunk: int = 16
    """Greedy tokens written at once; it hands over at the end of one."""
    filtered: bool = False
    """Whether groups all right or all wrong are left out, as in DAPO."""
    fill: Backfill = "restart"
    """Where missing leaves come from; "copy" as released."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 0.0

    @at_start
    def build(self) -> Parts:
        """A lookahead tree, then GRPO as it is."""
        check_group("latr", self.leaves)
        look = Look(
            absolute=self.absolute, relative=self.relative, ages=tuple(self.ages), alike=self.alike,
            by="chance" if self.random_prune else "similarity", chance=self.random_prune,
            spare=self.spare,
        )  # fmt: skip
        return Parts(
            "latr",
            Lookahead(self.leaves, float(self.share), look, float(self.full), self.most, self.chunk, fill=self.fill),
            load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high, kl=self.kl),
            averaging="sequence", filters=(Mixed(),) if self.filtered else (),
        )  # fmt: skip
