"""The gateway against the engine it stands in front of; many sessions that misbehave; forks by replay.

    python benchmarks/gateway.py ratio [--sessions 64] [--calls 4] [--tokens 64] [--repeats 5] [--policy nano]
                                       [--json FILE]
    python benchmarks/gateway.py load [--sessions 500] [--json FILE]
    python benchmarks/gateway.py forks [--items 50]

`ratio` alternates between requests to the engine and the same requests as chats of sessions over HTTP, from clients in
another process. It counts processor time, so other programs on the machine matter little: of this process, and of both,
where what the clients themselves spend counts against the gateway; the wall clock stands beside it. `load` and `forks`
fail where something is lost, or a fork is not reproduced.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import random
import statistics
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import torch
from machine import save

from rolltree.engine.local import LocalEngine
from rolltree.engine.local.run import LocalRun
from rolltree.engine.protocol import Request, Sampling
from rolltree.gateway.agents.task import AgentTask
from rolltree.gateway.gateway import Gateway, GatewayBounds
from rolltree.gateway.server import serving
from rolltree.generate.hand import Hand
from rolltree.generate.runner import grow
from rolltree.generate.turns import play
from rolltree.task.registry import load_task
from rolltree.tree import Tree

WORDS = ("12", "+", "7", "0", "*", "=", "calc ", "a", "?")


@dataclass(frozen=True)
class Ratio:
    """Tokens per second of processor time, medians over the repeats."""

    policy: str
    sessions: int
    calls: int
    tokens: int
    engine: float
    gateway: float
    ratio: float
    ratio_both: float
    """The clients' processor time counted too."""
    ratio_wall: float
    """By the wall clock, which other programs on the machine disturb."""
    rounds: list[tuple[float, float, float]]
    """The three ratios of each pair of rounds."""


@dataclass(frozen=True)
class Load:
    """What came of sessions of each kind, and where the sampled tokens are."""

    sessions: int
    kinds: dict[str, int]
    ended: dict[str, int]
    refused: dict[str, int]
    sampled: int
    """Tokens the engine made."""
    in_trees: int
    seconds: float
    problems: list[str]


# -- ratio -------------------------------------------------------------------------------------------------------------


def question(session: int) -> str:
    """A prompt for a session."""
    rng = random.Random(session)
    return "".join(rng.choice(WORDS) for _ in range(6)) + "\n"


async def direct(engine: LocalEngine, asked: argparse.Namespace) -> int:
    """The sessions without a gateway: each call goes on from the tokens of the last."""

    async def session(number: int) -> int:
        ids, made = engine.codec.encode(question(number)), 0
        for call in range(asked.calls):
            sampling = Sampling(max_tokens=asked.tokens, seed=number * 1000 + call, ignore_eos=True)
            sample = await engine.submit(Request(np.asarray(ids, np.int32), sampling, frozenset(), f"s{number}"))
            made += len(sample.actions)
            ids = [*ids, *sample.actions.tolist(), *engine.codec.encode("go\n")]
        return made

    return sum(await asyncio.gather(*(session(n) for n in range(asked.sessions))))


async def _clients(address: str, asked: argparse.Namespace, run: str) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def session(number: int) -> None:
            chat = [{"role": "user", "content": question(number)}]
            for call in range(asked.calls):
                body = {"messages": chat, "max_tokens": asked.tokens, "seed": number * 1000 + call}
                body["ignore_eos"] = True
                async with http.post(f"{address}/s/{run}-{number}/v1/chat/completions", json=body) as answer:
                    told = await answer.json()
                chat += [told["choices"][0]["message"], {"role": "user", "content": "go\n"}]

        await asyncio.gather(*(session(n) for n in range(asked.sessions)))


def clients(pipe: Any, asked: argparse.Namespace) -> None:
    """The other process: plays all sessions whenever it is told where."""
    while (told := pipe.recv()) is not None:
        address, run = told
        began = time.process_time()
        asyncio.run(_clients(address, asked, run))
        pipe.send(time.process_time() - began)


async def ratio(asked: argparse.Namespace) -> Ratio:
    """Both ways in turn, in one process."""
    engine = LocalEngine(asked.policy, threads=1)
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=clients, args=(theirs, asked), daemon=True)
    process.start()
    rates: dict[str, list[float]] = {"engine": [], "gateway": []}
    rounds: list[tuple[float, float, float]] = []
    gateway = Gateway(engine)
    async with serving(gateway) as (address, _):
        for repeat in range(asked.repeats + 1):
            wall, began = time.perf_counter(), time.process_time()
            made = await direct(engine, asked)
            plain, plain_wall = made / (time.process_time() - began), made / (time.perf_counter() - wall)
            before = sum(s.spent for s in gateway.sessions.values())
            wall, began = time.perf_counter(), time.process_time()
            ours.send((address, str(repeat)))
            others = await asyncio.get_running_loop().run_in_executor(None, ours.recv)
            spent, wall = time.process_time() - began, time.perf_counter() - wall
            made = sum(s.spent for s in gateway.sessions.values()) - before
            if repeat:  # the first is a warm-up
                rates["engine"].append(plain)
                rates["gateway"].append(made / spent)
                rounds.append((made / spent / plain, made / (spent + others) / plain, made / wall / plain_wall))
                told = "  ".join(f"{one:.3f}" for one in rounds[-1])
                print(f"engine {plain:.0f}/s  gateway {made / spent:.0f}/s  ratio, both, wall {told}", flush=True)
    ours.send(None)
    await engine.close()
    middle = {name: statistics.median(values) for name, values in rates.items()}
    own, both, wall = (statistics.median(values) for values in zip(*rounds, strict=True))
    return Ratio(
        asked.policy, asked.sessions, asked.calls, asked.tokens, middle["engine"], middle["gateway"], own, both, wall,
        rounds,
    )  # fmt: skip


# -- load --------------------------------------------------------------------------------------------------------------


class Counted(LocalEngine):
    """Counts what it makes, whoever asked for it."""

    runs: list[LocalRun]

    def submit(self, request: Request) -> LocalRun:
        """As of `LocalEngine`."""
        run = super().submit(request)
        self.runs.append(run)
        return run


KINDS = ("good", "good", "good", "good", "good", "good", "killed", "hung", "flooding", "broken")


async def load(asked: argparse.Namespace) -> Load:
    """Sessions side by side: most are good, the others hang up, fall silent, ask for too much, or send no JSON."""
    engine = Counted("nano", threads=1)
    engine.runs = []
    gateway = Gateway(engine, bounds=GatewayBounds(concurrent=128, waiting=2048, calls=12))
    ended, refused, problems = Counter[str](), Counter[str](), list[str]()
    began = time.monotonic()
    async with serving(gateway) as (address, _), aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:

        async def post(path: str, data: Any, kind: str) -> Any:
            raw = data if isinstance(data, bytes) else json.dumps(data).encode()
            async with http.post(address + path, data=raw, headers={"Content-Type": "application/json"}) as answer:
                told = await answer.json()
                if answer.status != 200:
                    refused[f"{kind}: {answer.status}"] += 1
                    return None
                return told

        async def session(number: int) -> None:
            kind, path = KINDS[number % len(KINDS)], f"/s/{number}"
            chat = [{"role": "user", "content": question(number % 50)}]
            for call in range(3):
                body = {"messages": chat, "max_tokens": 24, "seed": number * 10 + call}
                if kind == "broken" and call:
                    for raw in (b"{", b'{"messages": 1}', b"\xff\xfe", b"[" * 10_000):
                        await post(path + "/v1/chat/completions", raw, kind)
                if kind == "killed" and call == 1:
                    task = asyncio.create_task(post(path + "/v1/chat/completions", {**body, "max_tokens": 500}, kind))
                    await asyncio.sleep(0.05 * random.Random(number).random())
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task
                    ended[kind] += 1
                    return
                if kind == "hung" and call == 1:
                    ended[kind] += 1
                    return  # it never says anything again
                if kind == "flooding":
                    many = (post(path + "/v1/chat/completions", {**body, "n": 4}, kind) for _ in range(10))
                    told = [one for one in await asyncio.gather(*many) if one]
                    if not told:
                        break
                    told = told[0]
                else:
                    told = await post(path + "/v1/chat/completions", body, kind)
                if told is None:
                    problems.append(f"{kind} session {number} was refused")
                    return
                chat += [told["choices"][0]["message"], {"role": "user", "content": "go\n"}]
            if await post(path + "/reward", {"reward": float(number % 2)}, kind):
                ended[kind] += 1

        await asyncio.gather(*(session(n) for n in range(asked.sessions)))
        while any(one.busy for one in gateway.sessions.values()):
            await asyncio.sleep(0.05)
        made = sum([len((await run).actions) for run in engine.runs])
    kinds = Counter(KINDS[n % len(KINDS)] for n in range(asked.sessions))
    in_trees = sum(len(n) for tree in gateway.forest for n in tree if n.trainable)
    if in_trees != made:
        problems.append(f"the engine made {made} tokens and the trees hold {in_trees}")
    for kind in ("good", "broken"):
        if ended[kind] != kinds[kind]:
            problems.append(f"{kinds[kind] - ended[kind]} {kind} sessions did not end")
    for tree in gateway.forest:
        for leaf in tree.leaves():
            if leaf.trainable and not ("reward" in leaf.scores or leaf.usage or leaf.status in ("failed", "pruned")):
                problems.append(f"a leaf of {tree.id} has no end")
    await engine.close()
    return Load(asked.sessions, dict(kinds), dict(ended), dict(refused), made, in_trees,
                round(time.monotonic() - began, 1), problems)  # fmt: skip


# -- forks -------------------------------------------------------------------------------------------------------------


@dataclass
class EveryCall:
    """One rollout, and three more from each call of it."""

    needs: frozenset[str] = field(default_factory=frozenset[str])

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Rollout, then forks."""
        first = await play(hand, tree.root)
        calls = [n for n in tree.path(first) if n.role == "env" and n is not first]
        await asyncio.gather(*(play(hand, node, birth="vine") for node in calls for _ in range(3)))


async def forks(asked: argparse.Namespace) -> dict[str, int]:
    """A black box branched at its calls: how many of its forks are the same up to the fork."""
    agent = str(Path(__file__).with_name("black_box_agents.py")) + ":calculator"
    task = AgentTask(agent, task=load_task("calculator?fail_rate=0"))
    engine = LocalEngine("nano", threads=1)
    forest = await grow(EveryCall(), engine, task, list(itertools.islice(task.items("train", 0), asked.items)))
    await engine.close()
    ends = [leaf for _, leaf in forest.leaves()]
    failed = sum(leaf.status == "failed" for leaf in ends)
    return {"forks": len(ends) - len(forest), "reproduced": len(ends) - len(forest) - failed, "failed": failed}


def main() -> None:
    """Run one and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ratio", "load", "forks"))
    parser.add_argument("--sessions", type=int)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--policy", default="nano")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.what == "forks":
        told = asyncio.run(forks(asked))
        print(told)
        raise SystemExit(told["failed"] > 0)
    if asked.what == "ratio":
        asked.sessions = asked.sessions or 64
        row: Ratio | Load = asyncio.run(ratio(asked))
    else:
        asked.sessions = asked.sessions or 500
        row = asyncio.run(load(asked))
    print(json.dumps(asdict(row)))
    if asked.json:
        save(asked.json, [row])
    raise SystemExit(isinstance(row, Load) and bool(row.problems))


if __name__ == "__main__":
    main()
