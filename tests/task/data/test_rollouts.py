"""Chat tasks on a real engine: special tokens stop, tools answer, and rewards get the exact text."""

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.cluster.resume import ending
from rolltree.engine.local import LocalEngine
from rolltree.engine.local.stops import StopTables
from rolltree.engine.protocol import Request, Sampling
from rolltree.engine.segments.writer import End, find_end, foreseen
from rolltree.generate.decode import straddling_stop
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.policy.codec import HFCodec
from rolltree.policy.load import LoadedModel
from rolltree.task.foreign.calls import Tagged
from rolltree.task.foreign.tool_class import ToolClass
from rolltree.task.protocol import spoken_by
from rolltree.task.registry import load_task
from tests.task.data.test_tools import TOOLS, call
from tests.task.data.toy import CHATML, HERMES, rows, tokenizer


def model(template=CHATML, eos="<|im_end|>"):
    torch.manual_seed(0)
    made = tokenizer(template, eos)
    config = LlamaConfig(
        vocab_size=len(made), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=4096,
    )  # fmt: skip
    return LoadedModel(LlamaForCausalLM(config).eval(), HFCodec(made, len(made)), Path("toy"), "toy")


class Script:
    """Makes the policy say given turns, one after the other."""

    def __init__(self, codec, *turns):
        self.turns = [codec.encode(turn) for turn in turns]
        self.at = -1

    def __call__(self, generated, logits):
        self.at += len(generated) == 0
        forced = torch.full_like(logits, -1e9)
        forced[self.turns[self.at][len(generated)]] = 0.0
        return forced


def roll(task, template, *turns, eos="<|im_end|>"):
    async def main():
        engine = LocalEngine(model(template, eos))
        asked = spoken_by(task, engine.codec)
        item = next(asked.items("train"))
        try:
            drawn = Sampling(hook=Script(engine.codec, *turns))
            forest = await grow(Independent(1), engine, asked, [item], sampling=drawn)
        finally:
            await engine.close()
        (tree,) = forest
        (leaf,) = tree.leaves()
        return tree, leaf, engine.codec.decode_exact(tree.prefix(leaf))

    return asyncio.run(main())


@pytest.fixture
def file(tmp_path):
    (tmp_path / "tools.py").write_text(TOOLS)
    return rows(tmp_path / "q.jsonl", *({"prompt": x, "answer": "42"} for x in "ab")), f"{tmp_path / 'tools.py'}:add"


@pytest.mark.parametrize("eos", ["<|im_end|>", "<|endoftext|>"])
def test_a_turn_with_calls_is_answered_and_the_last_one_judged(file, eos):
    task = load_task(file[0], reward="exact", tool=file[1])
    calls = call("add", '{"a": 40, "b": 2}') + call("add", '{"a": 1}')
    tree, leaf, text = roll(task, HERMES, f"{calls}<|im_end|>", "42<|im_end|>", eos=eos)
    assert text.endswith(
        f"<|im_start|>assistant\n{calls}<|im_end|>\n<|im_start|>user\n<tool_response>\n42\n</tool_response><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n2\n</tool_response><|im_end|>\n<|im_start|>assistant\n42<|im_end|>"
    )
    assert [n.role for n in tree.path(leaf)] == ["prompt", "policy", "env", "policy", "env"]
    assert (leaf.scores["reward"], leaf.scores["solved"], leaf.notes["answer"]) == (1, 1, "42")
    assert (leaf.scores["calls"], leaf.finish) == (2, "stop")


@pytest.mark.parametrize(("eos", "finish"), [("<|im_end|>", "eos"), ("<|endoftext|>", "stop")])
def test_an_answer_ends_with_its_turn_and_is_read_without_tags(file, eos, finish):
    tree, leaf, _ = roll(load_task(file[0], reward="exact"), CHATML, "42<|im_end|>never", eos=eos)
    assert (leaf.finish, leaf.scores["reward"], leaf.notes["answer"]) == (finish, 1, "42")
    assert len(tree.path(leaf)[-1]) == 3


def test_an_environment_class_between_chat_tags_is_told_the_answer_alone(tmp_path):
    class World:
        def reset(self, **row):
            return ""

        def ask(self) -> str:
            """Ask."""
            return "seen"

        def get_reward(self):
            return 1.0

    tags = Tagged("<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n")
    task = ToolClass(World, [{"prompt": p, "split": "train"} for p in "ab"], calls=tags)
    _, leaf, _ = roll(task, None, call("ask", "{}"), "it is seen<|im_end|>")
    assert leaf.notes["answer"] == "it is seen"


def test_stop_strings_that_are_special_tokens_fire_in_every_reader():
    codec = model().codec
    end, text = codec.encode("<|im_end|>")[0], codec.encode("ab")
    tables = StopTables(codec, codec.vocab_size)
    for stop in ("<|im_end|>", "b<|im_end|>"):
        s = Sampling(max_tokens=8, stop=(stop,))
        assert find_end(tables, s, [], [*text, end, *text], 8) == End(3, "stop", stop)
        request = Request(np.zeros(1, np.int32), s)
        assert ending(request, codec, np.array([*text, end]), 99) == ("stop", stop)
    assert end in foreseen(tables, Sampling(stop=("<|im_end|>",)), -1)[0]
    assert straddling_stop(codec, np.array(text), np.array([end]), ("b<|im_end|>",)) == (1, "b<|im_end|>")
    plain = Sampling(max_tokens=8, stop=("x",))
    assert find_end(tables, plain, [], [*text, end], 8) == End(3, "eos")
    assert ending(Request(np.zeros(1, np.int32), plain), codec, np.array([end]), 99) == ("eos", "")
