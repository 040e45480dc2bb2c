"""Token-exact contexts: over random chats nothing the policy sampled is ever encoded again, lost or counted twice."""

from random import Random

import numpy as np
import pytest

from rolltree.engine.protocol import Sample, exact_text
from rolltree.gateway.answer import read
from rolltree.gateway.ask import Ask, message
from rolltree.gateway.contexts import Contexts
from rolltree.gateway.record import CallRecord
from rolltree.gateway.template import Plain, template_of
from rolltree.policy.codec import HFCodec
from rolltree.tree import Tree
from tests.gateway.chats import TEMPLATES, TOOLS, sampled, tokenizer, words


def sample_of(ids, finish="eos", stopped_by=""):
    zeros = np.zeros(len(ids), np.float32)
    return Sample(np.asarray(ids, np.int32), zeros, zeros, np.zeros(len(ids), np.int32), finish, stopped_by)


class Session:
    """A client and the gateway's two halves, without a server between them."""

    def __init__(self, codec, template, tree=None, name="s"):
        self.codec, self.template = codec, template
        self.contexts = Contexts(codec, template, lambda text: np.asarray(codec.encode(text), np.int32))
        self.record = CallRecord(tree or Tree("t", ()), name)
        self.made = 0

    def call(self, ask, *answers, stopped_by=""):
        prompt = self.contexts.place(ask)
        call = self.record.asked(prompt)
        said = []
        for ids in answers:
            sample = sample_of(ids, "stop" if stopped_by else "eos", stopped_by)
            answer = read(self.codec, self.template, ask, sample, (stopped_by,), f"call{self.made}")
            turn = self.contexts.said(prompt, ids, answer.text, answer.message or None)
            self.record.answered(call, sample, turn.number)
            self.made += len(ids)
            said.append(answer)
        return prompt, said


@pytest.fixture(scope="module", params=TEMPLATES)
def codec(request):
    return request.param, HFCodec(tokenizer(request.param))


def check(session, prompt):
    """What holds of every call: sampled ids stand as sampled, and the rest is the template's text."""
    turns = session.contexts.turns
    at = 0
    for span in prompt.spans:
        ids = turns[span.turn].ids
        assert at <= span.start <= span.stop <= len(prompt.ids)
        assert np.array_equal(prompt.ids[span.start : span.stop], ids[: span.stop - span.start]) or np.array_equal(
            prompt.ids[span.start : span.stop], ids[len(ids) - (span.stop - span.start) :]
        )
        at = span.stop


def check_tree(session):
    record = session.record
    assert record.sampled == session.made
    for call in record.calls:
        assert np.array_equal(record.tree.prefix(call.end), call.prompt.ids)
        for turn, node in call.answers.items():
            whole = np.concatenate([call.prompt.ids, session.contexts.turns[turn].ids])
            assert np.array_equal(record.tree.prefix(node), whole)


def random_chat(rng, name, codec):
    """A client that goes on, tries again, edits, forgets the beginning and starts helpers of its own."""
    template = template_of(codec.tokenizer)
    session = Session(codec, template)
    tools = TOOLS if rng.random() < 0.5 else ()
    start = [{"role": "system", "content": words(rng)}] if rng.random() < 0.3 else []
    chats = [[*start, {"role": "user", "content": words(rng)}]]
    for _ in range(rng.randrange(2, 7)):
        chat = rng.choice(chats)
        ask = Ask(tuple(message(m, "m") for m in chat), tools)
        answers = [sampled(rng, codec, tools) for _ in range(rng.choice((1, 1, 1, 2)))]
        prompt, said = session.call(ask, *answers)
        check(session, prompt)
        check_tree(session)
        told = rng.choice(said).message
        follow = [
            {"role": "tool", "content": words(rng)}
            if told.get("tool_calls")
            else {"role": "user", "content": words(rng)}
        ]
        grown = [*chat, dict(told), *follow]
        act = rng.random()
        if act < 0.65:
            chats[chats.index(chat)] = grown
        elif act < 0.75:  # retry: the chat stays as it is
            pass
        elif act < 0.85:  # a fork of the chat
            chats.append(grown)
        elif act < 0.92:  # compaction: the middle is left out
            chats.append([chat[0], {"role": "user", "content": words(rng)}])
        else:  # an edited answer
            chats.append([*chat, {**told, "content": words(rng)}, *follow])
    ends = session.record.ends()
    assert len(set(ends)) == len(ends)
    unused = {leaf.id for leaf in session.record.tree.leaves() if leaf.usage.startswith("dropped")}
    assert not unused & {leaf.id for leaf in ends}
    # Every sampled token is on the way to an end, or to a leaf that says why it is none.
    reached = {
        n.id for end in session.record.tree.leaves() if end in ends or end.usage for n in session.record.tree.path(end)
    }
    assert session.record.own <= reached
    return session


@pytest.mark.parametrize("block", range(2))
def test_random_chats_lose_nothing(codec, block):
    for seed in range(block * 50, block * 50 + 50):
        random_chat(Random(seed), *codec)


@pytest.mark.slow
def test_ten_thousand_random_chats(codec):
    for seed in range(10_000 // len(TEMPLATES) + 1):
        random_chat(Random(f"slow/{seed}"), *codec)


def test_a_linear_chat_repeats_every_sampled_token(codec):
    """Where the template leaves history alone (here no thought is ended), each prompt begins with all of the last."""
    _, codec = codec
    rng = Random(7)
    for _ in range(30):
        session, chat = Session(codec, template_of(codec.tokenizer)), [{"role": "user", "content": words(rng)}]
        before = None
        for _ in range(5):
            ids = sampled(rng, codec, ())
            while not ids or "</think>" in codec.decode(ids):
                ids = sampled(rng, codec, ())
            prompt, (said,) = session.call(Ask(tuple(chat)), ids)
            if before is not None:
                assert np.array_equal(prompt.ids[: len(before)], before)
                assert not prompt.changed
            before = np.concatenate([prompt.ids, ids])
            chat += [said.message, {"role": "user", "content": words(rng)}]
        assert len(session.record.ends()) == 1


def test_tool_calls_come_back_as_they_were_sampled(codec):
    name, codec = codec
    session, chat = Session(codec, template_of(codec.tokenizer)), [{"role": "user", "content": "two and two"}]
    text = (
        '{"name": "add",   "parameters": {"a":2}}'
        if name == "llama"
        else '<tool_call>{"name":"add","arguments":{"a":2}}</tool_call>'
    )
    ids = [*(i for c in text for i in codec.encode(c)), codec.eos_id]
    _, (said,) = session.call(Ask(tuple(chat), TOOLS), ids)
    assert said.finish == "tool_calls"
    asked = message({**said.message, "content": None}, "m")  # as clients send it back
    chat += [asked, {"role": "tool", "content": "4", "tool_call_id": asked["tool_calls"][0]["id"]}]
    prompt, _ = session.call(Ask(tuple(chat), TOOLS), ids)
    (span,) = prompt.spans
    assert np.array_equal(prompt.ids[span.start : span.stop], ids)
    assert exact_text(codec, prompt.ids[span.stop :]).startswith("\n" if name != "llama" else "<|start|>")


def test_a_thought_the_template_drops_leaves_the_context_and_keeps_the_answers_ids():
    codec = HFCodec(tokenizer("think"))
    session = Session(codec, template_of(codec.tokenizer))
    answer = [i for c in "the end" for i in codec.encode(c)]  # letter by letter, as no tokenizer spells it
    assert answer != codec.encode("the end")
    ids = [*codec.encode("<think>hm</think>"), *answer, codec.eos_id]
    chat = [{"role": "user", "content": "x"}]
    first, (said,) = session.call(Ask(tuple(chat)), ids)
    chat += [said.message, {"role": "user", "content": "y"}]
    prompt, _ = session.call(Ask(tuple(chat)), ids)
    assert prompt.changed == (0,)
    start = len(first.ids)
    assert np.array_equal(prompt.ids[start : start + len(answer) + 1], [*answer, codec.eos_id])
    fork = session.record.calls[1].end
    assert (fork.role, fork.trainable) == ("template", False)
    assert any("another way" in event.why for event in session.record.tree.events)
    assert len(session.record.ends()) == 2  # both contexts are trained, each on the tokens sampled in it


def test_without_a_template_the_stop_string_that_was_sampled_stands():
    """Whether the agent writes the newline back or not, the context has the one that was sampled, once."""
    codec = HFCodec(tokenizer("hermes"))
    for back, reply, whole in (("1+2", "3\n", ""), ("1+2\n", "3\n", ""), ("1+2", "\n3\n", "\n")):
        session = Session(codec, Plain())
        asked = {"role": "user", "content": "calc\n"}
        _, (said,) = session.call(Ask((asked,)), codec.encode("1+2\n"), stopped_by="\n")
        assert said.text == "1+2"
        chat = (asked, {"role": "assistant", "content": back}, {"role": "user", "content": reply})
        prompt, _ = session.call(Ask(chat), codec.encode("=3\n"), stopped_by="\n")
        assert codec.decode(prompt.ids) == f"calc\n1+2\n{whole}3\n"
        assert len(session.record.tree.leaves()) == 1


def test_completions_go_on_from_what_was_sampled():
    codec = HFCodec(tokenizer("hermes"))
    session = Session(codec, Plain())
    ids = [i for c in "the thin" for i in codec.encode(c)]
    session.call(Ask(text="in "), [*ids, codec.eos_id])
    prompt, _ = session.call(Ask(text="in the thin end"), codec.encode("the"))
    assert np.array_equal(prompt.ids, [*codec.encode("in "), *ids, *codec.encode(" end")])
    exact, _ = session.call(Ask(ids=tuple(prompt.ids.tolist())), codec.encode("he"))
    assert exact.spans[0].turn == 0
    check_tree(session)


def test_sessions_share_prompts_and_never_sampled_tokens():
    codec = HFCodec(tokenizer("hermes"))
    tree = Tree("t", ())
    ids = codec.encode("the")
    for name in ("a", "b"):
        session = Session(codec, Plain(), tree, name)
        session.call(Ask(text="in "), ids)
        session.call(Ask(text="in the end"), codec.encode("x"))
        assert session.record.sampled == len(ids) + 1
    assert len(tree.leaves()) == 2
    assert [len(n) for n in tree.children(tree.root)] == [len(codec.encode("in "))]


def test_superseded_answers_say_why():
    codec = HFCodec(tokenizer("hermes"))
    session = Session(codec, Plain())
    session.call(Ask(text="in"), codec.encode("a"))
    session.call(Ask(text="in"), codec.encode("b"), codec.encode("d"))
    session.call(Ask(text="inb x"), codec.encode("end"))
    ends = session.record.ends()
    assert [codec.decode(session.record.tree.prefix(n)) for n in ends] == ["inb xend"]
    usage = {codec.decode(n.actions): n.usage for n in session.record.tree.leaves()}
    assert usage == {"a": "dropped: asked again", "d": "dropped: another answer was taken", "end": ""}
