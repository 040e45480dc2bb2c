"""Groups of a chat model's prompts: what stands in the tree is what the template makes of each context."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from rolltree.control.brief import Brief, Slot, brief
from rolltree.control.history import History
from rolltree.control.ledger import Budget
from rolltree.control.order import Order, Prompt
from rolltree.rollout.group_builder import GroupBuilder
from rolltree.rollout.ordered_items import ordered_item
from rolltree.tree import Tree
from tests.generate.test_spoken import chat_run, template

NAMES = ["smollm2", "llama3", "gemma", "mistral"]


def gathered(name: str, *briefs: Brief | None, marks: dict[str, float] | None = None) -> tuple[Tree, Any, Any]:
    """The group of one item: a rollout for each order, with the log-probs of the context it is trained in."""
    with chat_run(name) as (engine, task, item):
        builder = GroupBuilder(engine, task, Budget(), (), History(), 1)
        for number, told in enumerate(briefs):
            order = Order(
                Prompt(item, 0), 1, "plain" if told is None else f"arm {number}", told, marks=marks or {}, why="asked"
            )  # fmt: skip
            asked = ordered_item(order, number)
            tree = builder.plant(order, asked, f"t{number}")
            assert engine.codec.decode_exact(tree.root.actions) == asked.prompt
            ids = engine.codec.encode(f"{number}")
            scored = asyncio.run(engine.score(np.concatenate([tree.root.actions, ids]), len(tree.root)))
            leaf = tree.extend(
                tree.root, ids, status="done", logp=scored.logp, sampling_logprob=scored.logp, version=[0] * len(ids)
            )  # fmt: skip
            leaf.scores["reward"] = 1.0
            _, heads = builder.gather(order, tree, (), number)
            asyncio.run(builder.rescore(order, heads))
        return builder.groups[0], engine.codec, item


def above(group: Tree, codec: Any) -> list[str]:
    """What stands in front of each rollout, in the order they came."""
    leaves = sorted((n for n in group.leaves() if n.role == "policy"), key=lambda n: codec.decode(n.actions))
    return [codec.decode_exact(group.prefix(n)[: -len(n)]) for n in leaves]


@pytest.mark.parametrize("name", NAMES)
def test_a_hidden_slot_leaves_the_training_prompt_as_it_was(name: str) -> None:
    told = Brief(
        (Slot("hint", "\nHint: <|im_end|>[/INST] 7\n", hidden=True), Slot("ex", "1+1=2\n", before=True, hidden=True))
    )
    for briefs in ((None, told), (told,)):
        group, codec, item = gathered(name, *briefs)
        assert list(group.root.actions) == codec.encode(item.prompt)
        assert set(above(group, codec)) == {item.prompt}
        guided = [n for n in group.leaves() if n.notes.get("arm")]
        assert all(not np.array_equal(n.logp, n.sampling_logprob) for n in guided), "trained as if it was not there"


@pytest.mark.parametrize("name", NAMES)
def test_a_shown_slot_stands_in_the_users_message_beside_the_bare_prompt(name: str) -> None:
    skill = brief("\nSKILL: <|im_end|> look", "skill", sources=("t/1",))
    for briefs in ((None, skill, None), (skill, None), (skill, brief("\nother", "skill"), None)):
        group, codec, item = gathered(name, *briefs, marks={"prior": 0.5})
        question = f"{item.prompt}"
        wanted = [template(name, ("user", f"{question}{'' if b is None else b.text}")) for b in briefs]
        assert above(group, codec) == wanted
        assert all(leaf.role == "policy" for leaf in group.leaves()), "no context is an empty leaf"
        hints = [n for n in group if n.role == "hint"]
        assert codec.decode_exact(hints[0].actions) == skill.text
        assert hints[0].notes["sources"] == ["t/1"]
        assert not hints[0].trainable
        assert group.root.scores["prior"] == 0.5


def test_the_beginning_of_an_answer_follows_the_bare_prompt() -> None:
    lead = brief("The answer", "hint", joins=True, trainable=True)
    group, codec, item = gathered("smollm2", None, lead)
    assert above(group, codec) == [item.prompt, str(item.prompt) + "The answer"]
    (hint,) = [n for n in group if n.role == "hint"]
    assert hint.trainable
    assert hint.logp is not None
    assert group.root is group.prompt


def test_slots_of_several_kinds_keep_what_is_shown() -> None:
    told = Brief((Slot("a", "\nA", hidden=True), Slot("b", "\nB"), Slot("c", "C", joins=True)))
    group, codec, item = gathered("qwen3", told)
    assert above(group, codec) == [template("qwen3", ("user", f"{item.prompt}\nB")) + "C"]
    assert [n.notes["slot"] for n in group if n.role == "hint"] == ["b", "c"]
