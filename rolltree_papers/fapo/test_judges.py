"""What `fapo` promises beside what all of its kind do."""

from __future__ import annotations

import asyncio

from rolltree.engine.tabular import TabularEngine
from rolltree.filter.parts import Flawed
from rolltree.generate.hand import Hand
from rolltree.generate.judge.protocol import entries
from rolltree.generate.judged import JUDGED
from rolltree.generate.runner import open_hand
from rolltree.task.protocol import Item
from rolltree.testing.tiny import CODEC, SpellTask
from rolltree_papers.fapo import FirstError, steps_of


def test_steps_of_an_answer() -> None:
    assert steps_of("a,b,c", ",") == ["a,", "b,", "c"]
    assert steps_of("a,", ",") == ["a,"]


def test_the_first_unlikely_step_is_found_by_the_policy_itself_and_marks_a_flaw() -> None:
    letters = "ab,cd"

    def likes(prefix: tuple[int, ...]) -> list[float]:
        """Letters in the order of "ab,cd", each 0.96 where it stands."""
        said = CODEC.decode(prefix)[2:]
        row = [0.002] * 27
        at = CODEC.alphabet.find(letters.replace(",", "y")[len(said) : len(said) + 1] or "!")
        row[at] = 0.948
        return row

    async def run() -> Hand:
        hand = open_hand(TabularEngine(likes, CODEC), SpellTask())
        hand = hand.on(hand.plant(Item("q", "qq", "a")))
        leaves = [hand.tree.extend(0, CODEC.encode(text), status="done") for text in ("abycd", "abyxd", "xbycd")]
        judge = FirstError("y", 0.5)
        said = await hand.judge(judge, [entries(hand, leaves)], about="steps")
        assert said == [[1.0, 0.5, 0.0]]
        for leaf, grade in zip(leaves, said[0] or (), strict=True):
            leaf.scores |= {"reward": 1.0, JUDGED: grade}
        Flawed(JUDGED)(hand.tree, 8)
        return hand

    hand = asyncio.run(run())
    assert [leaf.scores["flawed"] for leaf in hand.tree.leaves()] == [0.0, 1.0, 1.0]
