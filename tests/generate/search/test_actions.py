"""Actions that were proposed: what cannot be undone, ways back, the queue's rules, and both in a real environment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.judge.checklist import Checklist
from rolltree.generate.judge.protocol import Entry, JudgeError
from rolltree.generate.runner import open_hand
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.proposals import (
    CHECKPOINT,
    DESTRUCTIVE,
    NAME,
    repeats,
    way_back,
)
from rolltree.task.protocol import ActionAbout, Item, Reply, Split, Verdict

LETTERS = Letters("abcdxs?.+yn p")


def name(node: SearchNode[str] | None) -> str:
    return "" if node is None else node.payload


def test_no_way_back_leads_over_what_cannot_be_undone() -> None:
    graph: SearchGraph[str] = SearchGraph("")

    def below(node: SearchNode[str], **notes: Any) -> SearchNode[str]:
        return graph.add(Move(node, "do"), Made("", notes=notes))

    page = below(graph.root, **{NAME: "a", CHECKPOINT: True})
    panel = below(page, **{NAME: "b", CHECKPOINT: False})
    deeper = below(panel, **{NAME: "b", CHECKPOINT: False})
    target = below(deeper, **{NAME: "b"})
    assert way_back(target) == [panel, deeper]
    assert way_back(target, deeper) == []
    assert way_back(target, panel) == [deeper]
    assert way_back(panel) == []
    assert repeats(target) == 3
    panel.notes[DESTRUCTIVE] = True
    assert way_back(target) is None
    assert way_back(target, deeper) == [], "from where the world stands nothing is done again"
    deeper.notes[CHECKPOINT] = True
    assert way_back(target) == []


@dataclass(frozen=True, slots=True)
class Shop:
    """Do a, b, c in turn and end with s; x deletes for good, d is not possible; anything else stays."""

    name: str = "shop"
    level: int = 0
    stop: tuple[str, ...] = (".",)
    max_tokens: int = 16
    max_turns: int = 8

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        for number in range(100):
            yield Item(f"{split}-{seed}-{number}", "?", "abc")

    def start(self, item: Item) -> tuple[Any, str | None]:
        return "", "start"

    def about_action(self, item: Item, state: str, text: str) -> ActionAbout:
        kinds: dict[str, Any] = {"x": "destructive", "s": "terminating"}
        return ActionAbout(text[0], kinds.get(text[0], "plain"), text[0] != "d")

    async def step(self, item: Item, state: str, text: str) -> Reply:
        after = state + text[0] if item.answer.startswith(state + text[0]) or text[0] == "x" else state
        return Reply("+", after, text[0] == "s", state_key=after, parts={DESTRUCTIVE: float(text[0] == "x")})

    async def verify(self, item: Item, state: str, text: str) -> Verdict:
        return Verdict(float(state == item.answer), answer=state)


def test_a_checklist_counts_half_of_what_is_in_progress() -> None:
    def row(prefix: tuple[int, ...]) -> list[float]:
        out = [0.0] * len(LETTERS.alphabet)
        out[9], out[12], out[10] = 0.5, 0.3, 0.2
        return out

    async def said(judge: Checklist) -> float:
        hand = open_hand(TabularEngine(row, LETTERS), Shop(), seed=0)
        here = hand.on(hand.plant(Item("one", "?", "abc")))
        (opinion,) = await here.judge(judge, [[Entry(here.tree, here.tree.root, "a.")]], about="a test")
        assert opinion is not None
        return opinion[0]

    judge = Checklist(("a", "b"), "{prompt}{entry}{item}?", ("y", "p", "n"))
    assert asyncio.run(said(judge)) == pytest.approx(0.5 + 0.15)
    assert judge.calls(2) == 4
    with pytest.raises(JudgeError, match="0 items"):
        Checklist(())
