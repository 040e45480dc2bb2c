"""A server that samples several answers to each call of a client and hands over the best."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest

from rolltree.cli import main
from rolltree.gateway.choosing import PASSED, AnswerChoice
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.gateway import Gateway
from rolltree.gateway.record import GIVEN_UP
from rolltree.gateway.server import serving
from rolltree.generate.scorers import FunctionJudge, LookAhead, Verified, scorer_of
from rolltree.task.nano.calculator import Calculator
from rolltree.task.protocol import Item, Verdict
from tests.gateway.policies import letters
from tests.gateway.test_server import Client

ASKED = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 8, "seed": 3}


class Vowels:
    """The share of an answer that is an "a"; tasks of this kind judge a text by itself."""

    name, level, max_turns = "vowels", 0, 0

    async def verify(self, item: Item, state, text):
        return Verdict(text.count("a") / max(len(text), 1), answer=text, parts={"letters": float(len(text))})


@asynccontextmanager
async def choosing(scorer, answers=4, task=None):
    engine = letters()
    gateway = Gateway(engine, "tiny", task, choice=AnswerChoice(scorer, answers, task))
    async with serving(gateway) as (address, _), aiohttp.ClientSession() as http:
        yield Client(http, address, gateway)
    await engine.close()


async def chat(c, calls=3, name="s"):
    said, used = list(ASKED["messages"]), 0
    for number in range(calls):
        told = await c.post(f"/s/{name}/v1/chat/completions", {**ASKED, "messages": said, "seed": 100 * number})
        used += told["usage"]["completion_tokens"]
        said += [told["choices"][0]["message"], {"role": "user", "content": "on"}]
    return said, used


def check_whole(session):
    """Each sampled token stands in the tree once, and each prompt is made of what the client heard alone."""
    record = session.record
    assert record.sampled == session.spent
    for call in record.calls:
        assert record.tree.prefix(call.end).tolist() == call.prompt.ids.tolist()
        assert not any(node.id in record.passed for node in record.tree.path(call.end))
        assert sum(node.id not in record.passed for node in call.answers.values()) == 1


@pytest.mark.parametrize("name", ["entropy", "confidence"])
def test_the_client_hears_the_best_and_goes_on_from_it(name):
    async def work():
        async with choosing(scorer_of(name)) as c:
            _, used = await chat(c)
            await c.post("/s/s/reward", {"reward": 1})
            session = c.gateway.sessions["s"]
            check_whole(session)
            heard = 0
            for call in session.record.calls:
                answers = list(call.answers.values())
                assert len(answers) == 4
                best = max(answers, key=lambda node: (node.scores["value"], -node.id))
                assert best.id not in session.record.passed
                assert all(n.status == "pruned" and "reward" not in n.scores for n in answers if n is not best)
                (event,) = [e for e in session.tree.events if e.kind == "select" and e.node == best.id]
                assert event.numbers["values"] == {str(n.id): n.scores["value"] for n in answers}
                heard += len(best)
            assert used == heard
            assert sum(PASSED in e.why for e in session.tree.events if e.kind == "prune") == 9
            assert [n.scores["reward"] for n in session.tree.leaves() if "reward" in n.scores] == [1.0]

    asyncio.run(work())


def test_what_the_verifier_judged_keeps_its_outcome_and_its_credit():
    async def work():
        task = Vowels()
        async with choosing(Verified(), 6, task) as c:
            c.gateway.items["q"] = Item("q", "hi", "a")
            await c.post("/sessions", {"session": "s", "item": "q"})
            await chat(c, calls=1)
            await c.post("/s/s/end", {"reward": 0.125})
            session = c.gateway.sessions["s"]
            check_whole(session)
            (call,) = session.record.calls
            (best,) = [n for n in call.answers.values() if n.id not in session.record.passed]
            others = [n for n in call.answers.values() if n is not best]
            assert best.scores["reward"] == 0.125
            assert all(n.scores["reward"] == n.scores["value"] <= best.scores["value"] for n in others if len(n))
            assert len({n.scores["reward"] for n in others if len(n)}) > 1
            assert all(n.status == "done" and not n.usage for n in others if len(n))
            await c.post("/s/unknown/v1/chat/completions", ASKED, 400)  # a session of no item cannot be verified
            (lost,) = [s for name, s in c.gateway.sessions.items() if name == "unknown"]
            assert all(n.usage == GIVEN_UP for n in lost.record.calls[0].answers.values() if len(n))

    asyncio.run(work())


def test_a_judge_that_breaks_is_a_failed_answer_and_never_a_zero():
    def fussy(prompt, text):
        assert "<|im_start|>user\nhi" in prompt
        if "b" in text:
            raise ValueError("no b please")
        return text.count("a")

    def broken(prompt, text):
        return float("nan")

    async def work():
        async with choosing(FunctionJudge(fussy), 8) as c:
            said, _ = await chat(c, calls=1)
            assert "b" not in said[1]["content"]
            session = c.gateway.sessions["s"]
            check_whole(session)
            answers = list(session.record.calls[0].answers.values())
            failed = [n for n in answers if n.status == "failed"]
            assert failed
            assert not any("reward" in n.scores or "value" in n.scores for n in failed)
            assert any("no b please" in e.why for e in session.tree.events if e.kind == "fail")
        async with choosing(FunctionJudge(broken), 2) as c:
            told = await c.post("/s/s/v1/chat/completions", ASKED, 500)
            assert "no answer could be scored" in told["error"]["message"]
            session = c.gateway.sessions["s"]
            assert session.record.sampled == session.spent > 0
            assert not session.busy

    asyncio.run(work())


def test_equal_answers_are_told_apart_and_streams_hear_the_chosen_one_alone():
    """At temperature 0 all answers are the same tokens: the chat goes on below the one that was handed over."""

    async def work():
        async with choosing(scorer_of("confidence"), 3) as c:
            told = await c.post("/s/s/v1/chat/completions", {**ASKED, "temperature": 0})
            more = [*ASKED["messages"], told["choices"][0]["message"], {"role": "user", "content": "on"}]
            lines = await c.events("/s/s/v1/chat/completions", {**ASKED, "messages": more})
            assert lines[-1] == "[DONE]"
            session = c.gateway.sessions["s"]
            check_whole(session)
            assert session.record.calls[1].prompt.how == "goes on"

    asyncio.run(work())


def test_what_cannot_be_chosen_here_is_refused():
    engine = letters()
    with pytest.raises(GatewayError, match="cannot be run ahead"):
        Gateway(engine, choice=AnswerChoice(LookAhead()))
    with pytest.raises(GatewayError, match="start with --task"):
        Gateway(engine, choice=AnswerChoice(Verified()))
    with pytest.raises(GatewayError, match="judges its own environment"):
        Gateway(engine, choice=AnswerChoice(Verified(), 2, Calculator()))
    with pytest.raises(GatewayError, match="nothing to choose from"):
        Gateway(engine, choice=AnswerChoice(scorer_of("entropy"), 1))

    async def work():
        async with choosing(scorer_of("confidence")) as c:
            told = await c.post("/s/s/v1/chat/completions", {**ASKED, "n": 2}, 400)
            assert "leave n out" in told["error"]["message"]

    asyncio.run(work())


def test_the_command_refuses_an_unknown_scorer_before_it_listens(capsys):
    assert main(["serve", "--use-answers", "luck(answers=3)", "--port", "0"]) == 2
    assert "luck" in capsys.readouterr().err
