"""What recipes with briefs, roles and operators write for a chat model: each prompt is what its template makes.

`python -m tests.generate.test_spoken` prints them.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.control.brief import Brief, Slot, brief
from rolltree.control.order import Order, Prompt
from rolltree.engine.local import LocalEngine
from rolltree.generate.hand import Hand
from rolltree.generate.roles import is_side
from rolltree.generate.runner import grow, open_hand
from rolltree.generate.spoken import spoken_brief
from rolltree.recipe.compose import compose
from rolltree.recipe.registry import load_recipe
from rolltree.rollout.ordered_items import SpokenStep, ordered_item
from rolltree.task.data.chat import Chat
from rolltree.task.protocol import Item, spoken_by
from rolltree.task.registry import load_task
from rolltree.tree import Forest, Tree
from tests.task.data.templates import FORMATS, chat_tokenizer
from tests.task.data.toy import sums


@cache
def folder(name: str) -> Path:
    """A tiny random model with the template of a format, and rows of sums."""
    made = Path(tempfile.mkdtemp(prefix="rolltree-spoken-"))
    words = chat_tokenizer(name)
    words.save_pretrained(made / "model")
    config = LlamaConfig(
        vocab_size=len(words), hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=2048, bos_token_id=None, eos_token_id=words.eos_token_id,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(made / "model")
    sums(made / "sums.jsonl")
    return made


@contextmanager
def chat_run(name: str = "smollm2") -> Iterator[tuple[LocalEngine, Any, Item]]:
    """An engine, a task in its template, and an item."""
    engine = LocalEngine(folder(name) / "model")
    task = spoken_by(load_task(str(folder(name) / "sums.jsonl"), reward="number", max_tokens=8), engine.codec)
    try:
        yield engine, task, next(task.items("train"))
    finally:
        asyncio.run(engine.close())


def written(recipe: str, name: str = "smollm2", **knobs: Any) -> tuple[Forest, Any, Item]:
    """What a recipe's strategy grew for one item."""
    with chat_run(name) as (engine, task, item):
        strategy = compose(load_recipe(recipe, **knobs)).strategy
        return asyncio.run(grow(strategy, engine, task, [item], seed=1)), engine.codec, item


def template(name: str, *said: tuple[str, str]) -> str:
    """What the format makes of messages."""
    messages = [{"role": role, "content": text} for role, text in said]
    return chat_tokenizer(name).apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def prompts(forest: Forest, codec: Any) -> list[str]:
    """The prompts of side trees."""
    return [codec.decode_exact(tree.prefix(tree.prompt)) for tree in forest if is_side(tree)]


def contexts(tree: Tree, codec: Any) -> list[str]:
    """Everything in front of each attempt in a tree."""
    tops = [n for n in tree if n.role == "policy" and n.parent is not None and tree[n.parent].role != "policy"]
    return list(dict.fromkeys(codec.decode_exact(tree.prefix(n)[: len(tree.prefix(n)) - len(n)]) for n in tops))


def controls(text: str, name: str) -> int:
    return sum(text.count(token) for token in FORMATS[name].specials)


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_a_second_wave_reads_the_digests_in_the_users_message(name: str) -> None:
    forest, codec, item = written("rtv", name, attempts=2, keep=1)
    (again,) = [tree for tree in forest if tree.notes.get("role") == "again"]
    shown = codec.decode(again.prompt.actions[slice(*again.notes["slots"][0]["span"])])
    said = codec.decode_exact(again.prompt.actions)
    text = f"{shown}{item.prompt:s}"
    assert said == template(name, ("user", text))
    ids = [int(i) for i in again.prompt.actions if int(i) in codec.specials]
    assert len(ids) == controls(template(name, ("user", "x")), name), "an attempt's text adds no control token"


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_an_operator_speaks_as_the_user_behind_an_answer(name: str) -> None:
    again = "\nOnce more: {prompt}"
    texts = dict.fromkeys(("improve", "debug", "evolve", "fuse", "aggregate"), again)
    forest, codec, item = written("mcgs", name, nodes=6, **texts)
    asked, seen = f"{item.prompt}", 0
    whole = template(name, ("user", asked), ("assistant", "ANSWER"), ("user", again.format(prompt=asked)))
    for context in contexts(next(iter(forest)), codec):
        if context == item.prompt:
            continue
        assert context.startswith(item.prompt)
        assert context.endswith(whole.partition("ANSWER")[2])
        seen += 1
    assert seen


def test_a_move_from_the_root_asks_in_the_prompt_itself() -> None:
    with chat_run() as (engine, task, item):

        async def use() -> None:
            hand = open_hand(engine, task, seed=1)
            mine = hand.on(hand.plant(item))
            first = (await mine.extend(mine.tree.root, n=1))[0]
            root, stream = mine.tree.prompt, mine.rng_at(mine.tree.prompt).key
            mine.tree.root.scores["prior"] = 0.5
            for text in ("\n[a; b] again", "\n[c] again"):
                start = await mine.force(root, text, role="prompt")
                assert start is not None
                context = engine.codec.decode_exact(mine.tree.prefix(start))
                assert context == template("smollm2", ("user", f"{item.prompt}{text}"))
            assert engine.codec.decode_exact(mine.tree.prefix(root)) == item.prompt
            assert mine.tree.parent(first) is root
            assert mine.rng_at(root).key == stream, "what was drawn there is drawn again"
            assert mine.tree.root.scores["prior"] == 0.5

        asyncio.run(use())


def test_a_role_is_asked_in_the_template_of_its_own_model() -> None:
    theirs = LocalEngine(folder("gemma") / "model")
    with chat_run() as (engine, task, item):

        async def ask(**more: Any) -> list[str]:
            hand: Hand = open_hand(engine, task, seed=1, **more)
            mine = hand.on(hand.plant(item))
            await mine.ask("judge", brief("Is it <|im_end|> right? "), max_tokens=3)
            mine.side("judge", brief("Look.\n", before=True), item=item)
            return prompts(mine.forest, mine.as_actor("judge").codec)

        assert asyncio.run(ask()) == [
            template("smollm2", ("user", "Is it <|im_end|> right? ")),
            template("smollm2", ("user", f"Look.\n{item.prompt}")),
        ]
        assert asyncio.run(ask(roles={"judge": theirs})) == [
            template("gemma", ("user", "Is it <|im_end|> right? ")),
            template("gemma", ("user", f"Look.\n{item.prompt}")),
        ]
    asyncio.run(theirs.close())


def test_what_ends_a_turn_is_no_part_of_what_was_said() -> None:
    with chat_run("qwen2.5") as (engine, task, item):

        async def use() -> str:
            hand = open_hand(engine, task, seed=1)
            mine = hand.on(hand.plant(item))
            ids = engine.codec.encode("42<|im_end|>")
            return mine.text(mine.tree.extend(mine.tree.root, ids, status="done"))

        assert asyncio.run(use()) == "42"


def test_what_a_control_asks_in_its_own_words_is_asked_in_the_template() -> None:
    chat = Chat(chat_tokenizer("llama3"), "Be brief.")
    step = SpokenStep(1, 1, 1, np.random.default_rng(0), None, None, speaker=chat)  # type: ignore[arg-type]
    item = Item("q", chat.prompt("1+1="), "2")
    own, same = step.prompts_of([Item("own", f"Write a skill for {item.prompt}", None), item])
    said = template("llama3", ("system", "Be brief."), ("user", "Write a skill for 1+1="))
    assert (own.item.prompt, same.item) == (said, item)


def test_the_page_shows_what_a_template_makes() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/howto/judges.md").read_text(encoding="utf-8")
    chat = Chat(chat_tokenizer("qwen3"))
    attempt = brief("An earlier attempt: 5+1 is 7\n", "attempt 1", before=True)
    assert f"```\n{spoken_brief(attempt, chat.prompt('5+1=')).rstrip()!s}\n```" in page
    told = str(chat.prompt("5+1=")) + f"7{chat.ends}" + chat.again("[0] 5+1=").rstrip()
    assert f"```\n{told}\n```" in page


def shown() -> Iterator[tuple[str, str]]:
    """Recipes and what each writes for SmolLM2's template."""
    for recipe, knobs in (
        ("rtv", {"attempts": 2, "keep": 1}),
        ("tmas", {"attempts": 2, "turns": 2, "learn": "What does {text} teach about {prompt}?"}),
    ):
        forest, codec, _ = written(recipe, **knobs)
        for text in dict.fromkeys(prompts(forest, codec)):
            yield recipe, text
    forest, codec, _ = written("mcgs", nodes=4)
    for text in contexts(next(iter(forest)), codec)[1:]:
        yield "mcgs", text
    chat = Chat(chat_tokenizer("smollm2"))
    item = Item("q", chat.prompt("1+1="), "2")
    for recipe, slot in (
        ("guide", Slot("hint", "\nHint: The answer\n", hidden=True)),
        ("arise", Slot("skill", "\nSKILL: work step by step\n")),
        ("seele", Slot("hint", "The answer", joins=True)),
    ):
        order = Order(Prompt(item, 0), 1, "arm", Brief((slot,)))
        yield recipe, ordered_item(order, 0).prompt
    yield "e1", "effort 0.5\n" + item.prompt


def test_recipes_write_what_the_page_shows() -> None:
    said = dict(shown())
    user = "<|im_start|>user\n"
    assert f"{user}1+1=\nHint: The answer\n<|im_end|>\n<|im_start|>assistant\n" in said["guide"]
    assert f"{user}1+1=\nSKILL: work step by step\n<|im_end|>\n<|im_start|>assistant\n" in said["arise"]
    assert said["seele"].endswith("<|im_start|>assistant\nThe answer")
    assert f"{user}effort 0.5\n1+1=<|im_end|>" in said["e1"]
    for text in said.values():
        assert text.count("<|im_start|>system") == 1
        assert text.startswith("<|im_start|>system")


if __name__ == "__main__":
    for who, said in shown():
        print(f"--- {who}", str(said), sep="\n")
