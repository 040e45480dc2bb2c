"""Agents for tests, as they are found by address: they speak HTTP and know nothing of Rolltree."""

import asyncio
import re
import time
from random import Random

import aiohttp

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}


async def ask(item, messages, path="/chat/completions", **more):
    url = item["base_url"] + path
    async with aiohttp.ClientSession() as http, http.post(url, json={"messages": messages, **more}) as answer:
        told = await answer.json()
        if answer.status != 200:
            raise RuntimeError(told["error"]["message"])
        return told["choices"][0]["message"]


def calculate(text):
    call = re.fullmatch(r"(-?\d{1,9})([-+*])(\d{1,9})", text)
    if call is None:
        return "bad\n"
    a, b = int(call[1]), int(call[3])
    return f"{ {'+': a + b, '-': a - b, '*': a * b}[call[2]] }\n"


async def calculator(item):
    messages = [{"role": "user", "content": item["prompt"]}]
    while not re.fullmatch(r"=-?\d{1,12}", (said := await ask(item, messages, stop=["\n"]))["content"]):
        messages += [said, {"role": "user", "content": calculate(said["content"])}]
    return said["content"]


async def echo(item):
    """Doubles the first letter of each turn until one begins early in the alphabet."""
    messages = [{"role": "user", "content": item["prompt"]}]
    while (said := await ask(item, messages, stop=["!"]))["content"][:1] not in set("abcdef"):
        messages += [said, {"role": "user", "content": f"{said['content']}!"[0] * 2 + "!"}]
    return said["content"]


async def clock(item):
    """Says what time it is, so that no second run is like the first."""
    messages = [{"role": "user", "content": item["prompt"]}]
    for _ in range(3):
        said = await ask(item, messages, stop=["!"])
        now = "".join("abcdefghij"[int(digit)] for digit in str(time.perf_counter_ns()))
        messages += [said, {"role": "user", "content": f"{now}!"}]
    return said["content"]


async def crashing(item):
    await ask(item, [{"role": "user", "content": item["prompt"]}], stop=["!"])
    raise ZeroDivisionError("on purpose")


async def hanging(item):
    await ask(item, [{"role": "user", "content": item["prompt"]}], stop=["!"])
    await asyncio.sleep(3600)


async def forgetful(item):
    """Leaves out what was said."""
    said = await ask(item, [{"role": "user", "content": item["prompt"]}], stop=["!"])
    said = await ask(item, [{"role": "user", "content": item["prompt"]}, {"role": "user", "content": "a!"}])
    return said["content"]


async def brief(item):
    """The calculator's agent, which forgets all but the question and the last result."""
    start = {"role": "user", "content": item["prompt"]}
    messages = [start]
    while not re.fullmatch(r"=-?\d{1,12}", (said := await ask(item, messages, stop=["\n"]))["content"]):
        messages = [start, {"role": "user", "content": calculate(said["content"])}]
    return said["content"]


async def helped(item):
    """Two helpers with prompts of their own work side by side; what they say goes on in the conversation."""
    messages = [{"role": "user", "content": item["prompt"]}]
    for _ in range(2):
        said = await ask(item, messages, stop=["!"])

        async def helper(name):
            chat = [{"role": "user", "content": f"{name}!"}]
            for _ in range(2):
                told = await ask(item, chat, stop=["!"])
                chat += [told, {"role": "user", "content": "on!"}]
            return chat[-2]["content"]

        told = await asyncio.gather(helper("he"), helper("hf"))
        messages += [said, {"role": "user", "content": "".join(told)[:4] + "!"}]
    return said["content"]


def wanderer(seed):
    """An agent that goes on, asks again, edits, shortens, forks its history and starts helpers, as a seed says."""

    async def wander(item):
        rng = Random(f"{seed}/{item['id']}")
        start = [{"role": "user", "content": item["prompt"]}]
        chats, last = [start], ""
        for number in range(rng.randrange(2, 7)):
            chat = rng.choice(chats) if number else start
            told = await asyncio.gather(*(ask(item, chat, stop=["!"]) for _ in range(rng.choice((1, 1, 1, 2)))))
            said, last = told[0], told[0]["content"]
            more = {"role": "user", "content": rng.choice("gh") * rng.randrange(1, 4) + "!"}
            act = rng.random()
            if act < 0.4:
                chats[chats.index(chat)] = [*chat, said, more]
            elif act < 0.55:
                chats.append([*chat, said, more])
            elif act < 0.7:
                chats.append([chat[0], more])
            elif act < 0.85:
                chats.append([{"role": "user", "content": "hgh!"}, more])
            else:
                chats.append([*chat, {**said, "content": "ga"}, more])
        return last

    return wander


async def rewarding(item):
    """Judges itself by the gateway's reward route."""
    said = await ask(item, [{"role": "user", "content": item["prompt"]}], stop=["!"])
    base = item["base_url"].removesuffix("/v1")
    async with aiohttp.ClientSession() as http, http.post(base + "/reward", json={"reward": 0.25}) as answer:
        assert answer.status == 200
    return said["content"]


async def stepping(item):
    """Sends a reward for each call it made, one for a call long past, and in the end one for the whole."""
    base, messages = item["base_url"].removesuffix("/v1"), [{"role": "user", "content": item["prompt"]}]
    async with aiohttp.ClientSession() as http:
        for call in range(3):
            said = await ask(item, messages, stop=["!"])
            messages += [said, {"role": "user", "content": "on!"}]
            async with http.post(base + "/reward", json={"reward": 0.5 + call, "call": call}) as answer:
                assert answer.status == 200
            async with http.post(base + "/reward", json={"reward": 1, "call": call - 1}) as answer:
                assert answer.status == 400
                assert f"the last that was answered is {call}" in (await answer.json())["error"]["message"]
    return 0.25


async def tooled(item):
    """Calls the tool it is asked for until there is an answer in words."""
    messages = [{"role": "user", "content": item["prompt"]}]
    while (said := await ask(item, messages, tools=[TOOL])).get("tool_calls"):
        messages.append(said)
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "4"} for c in said["tool_calls"]]
    return said["content"]


async def timely(item):
    """Reads the time, a random number and a tool that counts its calls, all through `outside`."""
    messages = [{"role": "user", "content": item["prompt"]}]
    outside = item["outside"]
    for _ in range(4):
        said = await ask(item, messages, stop=["!"])
        read = f"{outside.now()!r} {outside.random.random()!r} {outside.call(counted, 'x')} {await outside.call(slow)}"
        now = "".join(c if c.isalpha() else "abcdefghij"[int(c)] for c in read if c.isalnum())
        messages += [said, {"role": "user", "content": f"{now}!"}]
        if said["content"][:1] in set("abc"):
            break
    return said["content"]


COUNT = [0]


def counted(_):
    """Answers differently each time."""
    COUNT[0] += 1
    return COUNT[0]


async def slow():
    return counted("")


async def moody(item):
    """Names the state it is in: only the first letter of what it heard last matters to it."""
    messages, mood = [{"role": "user", "content": item["prompt"]}], "calm"
    for _ in range(4):
        said = await ask(item, messages, stop=["!"], metadata={"state": mood})
        mood = "glad" if said["content"][:1] in set("abcdef") else "grim"
        messages += [said, {"role": "user", "content": f"{mood}!"}]
    return said["content"]
