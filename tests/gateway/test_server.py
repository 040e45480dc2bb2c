"""The gateway over HTTP: four protocols, streams, sessions, rewards, bounds, and clients that misbehave."""

import asyncio
import json
from contextlib import asynccontextmanager

import aiohttp
import numpy as np
import pytest

from rolltree.gateway.errors import GatewayError
from rolltree.gateway.gateway import Gateway, GatewayBounds
from rolltree.gateway.server import serving
from rolltree.task.protocol import Item
from rolltree.task.registry import load_task
from rolltree.tree.store.parquet import load, save
from tests.gateway.chats import TOOLS
from tests.gateway.policies import caller, endless, letters

CALL = '<tool_call>{"name":"add","arguments":{"a":2}}</tool_call>'
ASKED = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "seed": 3}


class Client:
    def __init__(self, http, address, gateway):
        self.http, self.address, self.gateway = http, address, gateway

    async def post(self, path, body, status=200, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **headers}
        async with self.http.post(self.address + path, data=data, headers=headers) as answer:
            told = await answer.json()
            assert answer.status == status, told
            return told

    async def events(self, path, body):
        async with self.http.post(self.address + path, json={**body, "stream": True}) as answer:
            assert answer.status == 200, await answer.text()
            lines = (await answer.text()).splitlines()
        return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


@asynccontextmanager
async def client(engine, token="", **bounds):
    gateway = Gateway(engine, "tiny", bounds=GatewayBounds(**bounds))
    async with serving(gateway, token=token) as (address, _), aiohttp.ClientSession() as http:
        yield Client(http, address, gateway)
    await engine.close()


def run(work):
    return asyncio.run(work())


def tokens(gateway):
    return sum(session.record.sampled for session in gateway.sessions.values())


def test_a_chat_grows_one_branch_and_ends_with_its_reward(tmp_path):
    async def work():
        async with client(letters()) as c:
            chat, used = list(ASKED["messages"]), 0
            for _ in range(3):
                told = await c.post("/s/a/v1/chat/completions", {**ASKED, "messages": chat, "logprobs": True})
                choice = told["choices"][0]
                used += told["usage"]["completion_tokens"]
                assert len(choice["logprobs"]["content"]) == told["usage"]["completion_tokens"]
                chat += [choice["message"], {"role": "user", "content": "and é?"}]
            await c.post("/s/a/reward", {"reward": 0.5})
            await c.post("/s/a/v1/chat/completions", {**ASKED, "messages": chat}, 409)
            return c.gateway, used

    gateway, used = run(work)
    (tree,) = gateway.forest
    (leaf,) = tree.leaves()
    assert [n.role for n in tree.path(leaf)] == ["prompt", "prompt", "policy", "env", "policy", "env", "policy"]
    assert sum(len(n) for n in tree if n.trainable) == used == tokens(gateway)
    assert (leaf.status, leaf.scores["reward"]) == ("done", 0.5)
    save(gateway.forest, tmp_path / "forest")
    (again,) = load(tmp_path / "forest")
    assert [n.scores for n in again.leaves()] == [{"reward": 0.5}]


def test_recorded_logprobs_are_the_engines_own():
    async def work():
        engine = letters()
        async with client(engine) as c:
            told = await c.post("/v1/chat/completions", {**ASKED, "logprobs": True, "top_logprobs": 2, "n": 3})
            session = c.gateway.sessions["default"]
            for choice, node in zip(told["choices"], session.record.calls[0].answers.values(), strict=True):
                whole = session.tree.prefix(node)
                scored = await engine.score(whole, len(whole) - len(node))
                assert np.allclose(scored.logp, node.logp, atol=1e-6)
                shown = [one["logprob"] for one in choice["logprobs"]["content"]]
                assert np.allclose(shown, scored.logp, atol=1e-6)
                assert all(len(one["top_logprobs"]) == 2 for one in choice["logprobs"]["content"])

    run(work)


def test_the_same_seed_gives_the_same_text_streamed_or_not():
    async def work():
        async with client(letters()) as c:
            whole = await c.post("/s/a/v1/chat/completions", ASKED)
            events = await c.events("/s/b/v1/chat/completions", {**ASKED, "stream_options": {"include_usage": True}})
            assert events[-1] == "[DONE]"
            parts = [json.loads(e) for e in events[:-1]]
            text = "".join(ch["delta"].get("content", "") for p in parts for ch in p["choices"])
            assert text == whole["choices"][0]["message"]["content"]
            assert parts[-1]["usage"] == whole["usage"]
            plain = {"prompt": "hi", "max_tokens": 12, "seed": 3}
            told = await c.post("/s/c/v1/completions", plain)
            parts = [json.loads(e) for e in (await c.events("/s/d/v1/completions", plain))[:-1]]
            assert "".join(p["choices"][0]["text"] for p in parts) == told["choices"][0]["text"]
            asked = {"model": "tiny", "messages": ASKED["messages"], "max_tokens": 12}
            parts = [json.loads(e) for e in await c.events("/s/e/v1/messages", asked)]
            assert [p["type"] for p in parts][:2] == ["message_start", "content_block_start"]
            assert parts[-1]["type"] == "message_stop"
            parts = [json.loads(e) for e in await c.events("/s/f/v1/responses", {"input": "hi"})]
            said = "".join(p["delta"] for p in parts if p["type"] == "response.output_text.delta")
            assert parts[-1]["response"]["output"][0]["content"][0]["text"] == said

    run(work)


def test_a_stop_string_is_sampled_and_not_shown():
    async def work():
        async with client(letters()) as c:
            asked = {"prompt": "x", "max_tokens": 400, "stop": ["b"], "return_token_ids": True}
            stopped = 0
            for seed in range(8):
                (choice,) = (await c.post("/v1/completions", {**asked, "seed": seed}))["choices"]
                text = c.gateway.engine.codec.decode(choice["token_ids"])
                stopped += text.endswith("b")
                assert choice["text"] == text.removesuffix("b")
                assert "b" not in choice["text"]
            assert stopped

    run(work)


@pytest.mark.parametrize("protocol", ["chat", "responses", "messages"])
def test_calls_of_tools_go_there_and_back_without_a_token_lost(protocol):
    """Each protocol writes the call in its own way, and each way back finds the tokens that were sampled."""
    function = TOOLS[0]["function"]

    async def work():
        async with client(caller(CALL, "it is 4")) as c:
            if protocol == "chat":
                asked = {**ASKED, "max_tokens": 200, "tools": list(TOOLS)}
                told = (await c.post("/v1/chat/completions", asked))["choices"][0]
                assert told["finish_reason"] == "tool_calls"
                (called,) = told["message"]["tool_calls"]
                assert json.loads(called["function"]["arguments"]) == {"a": 2}
                reply = {"role": "tool", "tool_call_id": called["id"], "content": "4"}
                asked["messages"] = [*ASKED["messages"], told["message"], reply]
                said = (await c.post("/v1/chat/completions", asked))["choices"][0]["message"]["content"]
            elif protocol == "responses":
                asked = {"input": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", **function}]}
                (called,) = (await c.post("/v1/responses", asked))["output"]
                reply = {
                    "type": "function_call_output",
                    "call_id": called["call_id"],
                    "output": [{"type": "input_text", "text": "4"}],
                }
                asked["input"] += [called, reply]
                said = (await c.post("/v1/responses", asked))["output"][0]["content"][0]["text"]
            else:
                tool = {"name": "add", "input_schema": {"type": "object"}}
                asked = {"messages": list(ASKED["messages"]), "tools": [tool], "max_tokens": 200}
                told = await c.post("/v1/messages", asked)
                (called,) = told["content"]
                assert (told["stop_reason"], called["input"]) == ("tool_use", {"a": 2})
                reply = {"type": "tool_result", "tool_use_id": called["id"], "content": "4"}
                asked["messages"] += [
                    {"role": "assistant", "content": told["content"]},
                    {"role": "user", "content": [reply]},
                ]
                said = (await c.post("/v1/messages", asked))["content"][0]["text"]
            assert said == "it is 4"
            (leaf,) = c.gateway.sessions["default"].tree.leaves()
            codec, path = c.gateway.engine.codec, c.gateway.sessions["default"].tree.path(leaf)
            assert [codec.decode(n.actions) for n in path if n.trainable] == [CALL, "it is 4"]

    run(work)


def test_what_cannot_be_served_is_one_sentence_and_harms_nobody():
    async def work():
        picture = [{"type": "image_url"}]
        async with client(letters(), body_bytes=20_000) as c:
            for path, body, status, word in (
                ("/v1/chat/completions", b"{broken", 400, "not JSON"),
                ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "\\ud800"}]}', 400, "UTF-8"),
                ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}', 400, "UTF-8"),
                ("/v1/chat/completions", b"[1]", 400, "no JSON object"),
                ("/v1/chat/completions", {"messages": []}, 400, "empty"),
                ("/v1/chat/completions", {"messages": [{"role": "god", "content": "x"}]}, 400, "role"),
                (
                    "/v1/chat/completions",
                    {"messages": [{"role": "user", "content": picture}]},
                    400,
                    "image_url",
                ),
                ("/v1/chat/completions", {**ASKED, "temperature": "hot"}, 400, "temperature"),
                ("/v1/chat/completions", {**ASKED, "temperature": 10**400}, 400, "temperature"),
                ("/v1/chat/completions", {**ASKED, "temperature": float("nan")}, 400, "temperature"),
                ("/v1/chat/completions", {**ASKED, "n": 1000}, 400, "n is 1000"),
                (
                    "/v1/chat/completions",
                    {"messages": [{"role": "user", "content": "a" * 9000}]},
                    400,
                    "context",
                ),
                ("/v1/completions", {"prompt": [1, 10**6]}, 400, "token ids"),
                ("/v1/completions", {"prompt": ["a", "b"]}, 400, "one text"),
                ("/v1/responses", {"input": [{"type": "image"}]}, 400, "image"),
                ("/s/nobody/reward", {"reward": 1}, 404, "no session"),
                ("/v1/chat/completions", b"x" * 30_000, 413, ""),
            ):
                told = await c.post(path, body, status)
                assert word in told["error"]["message"], told
            told = await c.post("/s/x/v1/chat/completions", ASKED)
            assert told["usage"]["completion_tokens"] > 0
            await c.post("/s/x/reward", {"reward": float("1e300")}, 400)
            await c.post("/s/x/reward", {"reward": 1, "call": 7}, 404)

    run(work)


def test_a_client_that_hangs_up_stops_its_samples_and_they_are_counted():
    async def work():
        async with client(endless()) as c:
            for body in ({**ASKED, "max_tokens": 10**6}, {**ASKED, "max_tokens": 10**6, "stream": True}):
                name = "s" if body.get("stream") else "w"
                task = asyncio.create_task(c.post(f"/s/{name}/v1/chat/completions", body))
                while not (name in c.gateway.sessions and c.gateway.sessions[name].busy):
                    await asyncio.sleep(0)
                session = c.gateway.sessions[name]
                for _ in range(200):
                    await asyncio.sleep(0)
                task.cancel()
                while session.busy or not session.contexts.turns:
                    await asyncio.sleep(0.001)
                (node,) = session.record.calls[0].answers.values()
                assert (node.status, node.usage) == ("pruned", "dropped: nobody waited for it")
                assert session.record.sampled == len(node)
            assert tokens(c.gateway) < 10**6

    run(work)


def test_a_call_that_takes_too_long_is_stopped():
    async def work():
        async with client(endless(), call_seconds=0.2) as c:
            told = await c.post("/v1/chat/completions", {**ASKED, "max_tokens": 10**6}, 504)
            assert "0.2 s" in told["error"]["message"]
            assert c.gateway.sessions["default"].record.sampled > 0

    run(work)


def test_sessions_end_by_bounds_by_silence_and_with_the_gateway():
    async def work():
        async with client(letters(), calls=2, idle_seconds=0.0) as c:
            for _ in range(2):
                await c.post("/s/a/v1/chat/completions", ASKED)
            assert "2 calls" in (await c.post("/s/a/v1/chat/completions", ASKED, 429))["error"]["message"]
            await asyncio.sleep(0.01)
            c.gateway.expire()
            assert "nothing was heard" in c.gateway.sessions["a"].ended
            await c.post("/s/b/v1/chat/completions", ASKED)
            gateway = c.gateway
        assert "closed" in gateway.sessions["b"].ended
        leaves = [leaf for tree in gateway.forest for leaf in tree.leaves()]
        assert all(leaf.status == "failed" or leaf.usage == "dropped: asked again" for leaf in leaves)
        assert not any("reward" in leaf.scores for leaf in leaves)

    run(work)


def test_sessions_by_path_header_and_key_behind_a_token():
    async def work():
        async with client(letters(), token="secret") as c:
            await c.post("/v1/chat/completions", ASKED, 401)
            await c.post("/v1/chat/completions", ASKED, 401, Authorization="Bearer wrong")
            await c.post("/v1/chat/completions", ASKED, Authorization="Bearer secret:a")
            await c.post("/v1/messages", {**ASKED, "model": "tiny"}, **{"x-api-key": "secret:b"})
            await c.post("/v1/chat/completions", ASKED, Authorization="Bearer secret", **{"X-Rolltree-Session": "c"})
            await c.post("/s/d/v1/chat/completions", ASKED, Authorization="Bearer secret")
            assert set(c.gateway.sessions) == set("abcd")

    run(work)


def test_only_loopback_needs_no_token():
    async def work():
        with pytest.raises(GatewayError, match="token"):
            async with serving(Gateway(letters()), "0.0.0.0"):
                pass

    run(work)


def test_a_verifier_judges_the_final_text():
    async def work():
        async with client(letters()) as c:
            c.gateway.task = load_task("countdown")
            items = c.gateway.task.items("train", 0)
            one = next(items)
            c.gateway.items[one.id] = one
            told = await c.post("/sessions", {})
            assert (told["item"], told["prompt"]) == (one.id, one.prompt)
            await c.post(f"/s/{told['session']}/v1/chat/completions", ASKED)
            said = await c.post(f"/s/{told['session']}/end", {"final": "no answer"})
            assert said["reward"] == 0.0
            c.gateway.task = Broken()
            told = await c.post("/sessions", {"item": one.id, "session": "again"})
            await c.post("/s/again/v1/chat/completions", ASKED)
            await c.post("/s/again/end", {"final": "x"}, 500)
            (failed,) = c.gateway.sessions["again"].record.calls[0].answers.values()
            assert failed.status == "failed"
            assert "reward" not in failed.scores

    run(work)


class Broken:
    name, max_turns = "broken", 0

    async def verify(self, item: Item, state, text):
        raise ZeroDivisionError


def test_many_sessions_at_once_lose_nothing():
    """200 clients, some killed, some broken: every sampled token is in a tree, and the others are served."""

    async def work():
        async with client(letters(), concurrent=64) as c:

            async def agent(k):
                if k % 10 == 3:
                    return await c.post(f"/s/{k}/v1/chat/completions", b"{", 400)
                chat = [{"role": "user", "content": f"item {k % 7}"}]
                for _ in range(3):
                    told = await c.post(f"/s/{k}/v1/chat/completions", {"messages": chat, "max_tokens": 6, "seed": k})
                    chat += [told["choices"][0]["message"], {"role": "user", "content": "go on"}]
                    if k % 10 == 5:
                        await asyncio.sleep(30)
                await c.post(f"/s/{k}/reward", {"reward": float(k % 2)})
                return None

            tasks = [asyncio.create_task(agent(k)) for k in range(200)]
            served = [t for k, t in enumerate(tasks) if k % 10 != 5]
            await asyncio.gather(*served)
            for task in tasks:
                task.cancel()
            return c.gateway

    gateway = run(work)
    ended = [s for s in gateway.sessions.values() if s.ended == "rewarded by the client"]
    assert len(ended) == 160
    for session in gateway.sessions.values():
        assert session.record.sampled == sum(len(turn.ids) for turn in session.contexts.turns)
    assert all(len([leaf for leaf in s.tree.leaves() if "reward" in leaf.scores]) == 1 for s in ended)
