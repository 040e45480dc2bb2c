"""Multi-hop look-up with a `search` tool over a generated knowledge base.

`ko.b.h?` asks for the h of the b of ko (b boss, f friend, h home, p pet). `?ko` searches and is answered by all facts
about ko, `b:mi h:za p:lu`; the policy reads the one it needs, searches on, and answers `=za`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import ClassVar

from rolltree.task.items import check_level, digest, stream
from rolltree.task.protocol import Item, Reply, Split, Verdict

HOPS = {1: (1, 2), 2: (2, 3), 3: (3, 3), 4: (4, 4)}
"""Level -> hops of the question, facts per entity."""
RELATIONS = "bfhp"
NAMES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")
ENTITIES = 8
CALL = re.compile(r"\?([a-z]{1,8})\n")
ANSWER = re.compile(r"=([a-z]{1,8})\n?")
Facts = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Known:
    """What the searches so far have shown, without their order, and the answer once given."""

    seen: frozenset[str] = frozenset()
    answer: str | None = None

    @property
    def key(self) -> str:
        """Name of the state: the entities looked up."""
        return "+".join(sorted(self.seen)) or "nothing"


@dataclass(frozen=True)
class Lookup:
    """Follow the relations by searching. Each new entity on the path earns a step reward; the score is the answer's."""

    measures: ClassVar[frozenset[str]] = frozenset({"hops"})
    level: int = 2
    name: str = field(default="lookup", init=False)
    stop: tuple[str, ...] = field(default=("\n",), init=False)
    max_tokens: int = 32
    max_turns: int = 6

    def __post_init__(self) -> None:
        check_level(self.name, self.level, tuple(HOPS))

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Each question has a knowledge base of its own; the same question over another base stays in its split."""
        return stream(self.name, self.level, split, seed, partial(_draw, self.level))

    def start(self, item: Item) -> tuple[Known, str | None]:
        """Nothing is known."""
        return Known(), f"{item.id}/{Known().key}"

    async def step(self, item: Item, state: Known, text: str) -> Reply:
        """Answer a search with every fact about the entity, or take the final answer."""
        key = f"{item.id}/{state.key}"
        if (answer := ANSWER.fullmatch(text)) is not None:
            return Reply("", replace(state, answer=answer[1]), done=True, state_key=f"{key}={answer[1]}")
        call = CALL.fullmatch(text)
        if call is None:
            return Reply("bad\n", state, state_key=key, failed=True)
        facts = item.meta["facts"].get(call[1])
        if facts is None:
            return Reply("none\n", state, state_key=key)
        path = item.meta["path"][:-1]
        hop = float(call[1] in path and call[1] not in state.seen) / len(path)
        state = replace(state, seen=state.seen | {call[1]})
        text = " ".join(f"{relation}:{value}" for relation, value in facts.items()) + "\n"
        return Reply(text, state, reward=hop, state_key=f"{item.id}/{state.key}", parts={"hop": hop})

    async def verify(self, item: Item, state: Known, text: str) -> Verdict:
        """Exact answer; `hops` is the share of the path that was looked up."""
        path = item.meta["path"][:-1]
        parts = {"hops": sum(entity in state.seen for entity in path) / len(path)}
        answer = state.answer
        if answer is None and (last := ANSWER.fullmatch(text.rpartition("\n")[2])):
            answer = last[1]
        if answer is None:
            return Verdict(0.0, parts, why="no answer was given")
        right = answer == item.answer
        return Verdict(float(right), parts, answer, "" if right else f"answered {answer} instead of {item.answer}")

    def act(self, item: Item, state: Known, rng: Random, noise: float = 0.0) -> str:
        """Search the next entity of the path; mistakes read another relation or answer too early."""
        path, facts = item.meta["path"], item.meta["facts"]
        known = 0
        while known < len(path) - 1 and path[known] in state.seen:
            known += 1
        here = path[known]
        if known and rng.random() < noise:
            here = rng.choice(sorted(facts[path[known - 1]].values()))
        if known == len(path) - 1 or (known and rng.random() < noise / 2):
            return f"={here}\n"
        return f"?{here}\n"


def _draw(level: int, rng: Random) -> tuple[str, Item] | None:
    """A knowledge base and a walk on it that visits no entity twice."""
    hops, degree = HOPS[level]
    names = rng.sample(NAMES, ENTITIES)
    facts: dict[str, dict[str, str]] = {}
    for entity in names:
        others = rng.sample([name for name in names if name != entity], degree)
        facts[entity] = dict(zip(rng.sample(RELATIONS, degree), others, strict=True))
    path, relations = [names[0]], list[str]()
    for _ in range(hops):
        relation = rng.choice(sorted(facts[path[-1]]))
        relations.append(relation)
        path.append(facts[path[-1]][relation])
    if len(set(path)) < len(path):
        return None
    prompt = ".".join([path[0], *relations]) + "?\n"
    known = "".join(f"{entity}{relation}{value}" for entity, row in facts.items() for relation, value in row.items())
    return prompt, Item(f"lookup-{digest(prompt + known)}", prompt, path[-1], level, {"facts": facts, "path": path})
