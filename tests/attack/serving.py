"""A server that is told to end, killed, or loses its disk, with clients that hold it up; and bursts of clients that go.

Promised: an end that was answered stands on the disk, whatever ends the server. A signal ends it whatever clients do.
Where its folder takes no more, it says where everything goes. A client that has gone costs no further token.
"""

from __future__ import annotations

import asyncio
import functools
import json
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.attack.frame import Attack, BrokenPromiseError, Chance

PATIENCE = 50.0
"""Seconds after which a server hangs: less than a client was waited for once, and many times what it takes."""
AGENTS = 6
_PRELOAD = ("rolltree.cli.serve", "rolltree.engine.local", "rolltree.gateway.server", "rolltree.tree.store.parquet",
            "aiohttp", "transformers.models.llama.modeling_llama", "safetensors.torch")  # fmt: skip
ENDS = ("SIGKILL", "SIGINT", "full disk", "SIGTERM", "no folder", "twice", "SIGKILL", "SIGHUP")


@functools.cache
def _children() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_PRELOAD))
    return context


def _serve(out: Path, log: Path) -> None:
    """In a child: the command itself."""
    with log.open("w") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, signal.SIG_DFL if sign != signal.SIGINT else signal.default_int_handler)
    tempfile.tempdir = str(log.parent)
    from rolltree.cli import main

    code = main(["serve", "--policy", "nano", "--port", "0", "--out", str(out), "--concurrent", "4"])
    sys.stdout.flush()
    os._exit(code)


class _Clients:
    """What they were promised."""

    def __init__(self, address: str, rng: Chance) -> None:
        self.address, self.rng = address, rng
        self.ended: dict[str, float] = {}
        """Rewards whose sessions' end was answered."""
        self.held: list[asyncio.StreamWriter] = []

    async def agent(self, http: Any, name: str) -> None:
        """Sessions one after the other, until the server is gone."""
        from aiohttp import ClientError

        for k in range(10_000):
            session, reward = f"{name}.{k}", float(k + 1)
            item = {"session": session, "item": f"item {k % 3}"} if self.rng.random() < 0.5 else {"session": session}
            try:
                for path, body in (
                    ("/sessions", item),
                    (f"/s/{session}/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}],
                                                          "max_tokens": self.rng.randint(1, 6)}),
                    (f"/s/{session}/reward", {"reward": reward}),
                ):  # fmt: skip
                    async with http.post(self.address + path, json=body) as answer:
                        if answer.status != 200:
                            return
                self.ended[session] = reward
            except (ClientError, ConnectionError):
                return

    async def hold(self) -> None:
        """Connections that hold a server up: half a head, half a body, and streams that nobody reads."""
        host, port = self.address.removeprefix("http://").split(":")
        for k in range(3):
            _, writer = await asyncio.open_connection(host, int(port))
            body = json.dumps({"prompt": "hi", "max_tokens": 400, "stream": True, "temperature": 2.0})
            size = len(body) if k == 2 else 10_000
            head = (f"POST /s/held{k}/v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\n"
                    f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n")  # fmt: skip
            writer.write(b"POST /v1" if k == 0 else (head + body).encode())
            self.held.append(writer)


def _until(what: Callable[[], Any], said: str) -> Any:
    end = time.monotonic() + 4 * PATIENCE
    while not (found := what()):
        if time.monotonic() > end:
            raise BrokenPromiseError(f"{said} in {4 * PATIENCE:g} s")
        time.sleep(0.02)
    return found


def serving(rng: Chance, place: Path) -> str:
    """One server with agents and clients that hold it up, ended in one of the ways."""
    import aiohttp

    how, out, log = ENDS[rng.number % len(ENDS)], place / "out", place / "log"
    child = _children().Process(target=_serve, args=(out, log))
    child.start()

    def heard() -> Any:
        if not child.is_alive():
            raise BrokenPromiseError(f"the server ended at once: {log.read_text()}")
        return re.search(r"http://[\d.:]+", log.read_text()) if log.exists() else None

    clients = _Clients(_until(heard, "the server did not begin")[0], rng)

    async def work() -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(4 * PATIENCE)) as http:
            await clients.hold()
            agents = [asyncio.create_task(clients.agent(http, str(k))) for k in range(AGENTS)]

            async def more(count: int) -> None:
                wanted = len(clients.ended) + count
                while len(clients.ended) < wanted and not all(agent.done() for agent in agents):
                    await asyncio.sleep(0.01)

            await more(rng.randint(1, 10))
            if how == "no folder":
                out.rename(place / "moved")
                out.write_text("no folder")
                await more(10)
            elif how == "full disk":
                resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
                await more(10)
                resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
                await more(1)
            await asyncio.sleep(0.1 * rng.random())
            if not child.is_alive():
                raise BrokenPromiseError(f"{how}: the server ended by itself: {log.read_text()}")
            sign = {"twice": signal.SIGINT}.get(how) or getattr(signal, how, signal.SIGTERM)
            os.kill(child.pid, sign)
            if how == "twice":
                await asyncio.sleep(0.2 * rng.random())
                with suppress(ProcessLookupError):  # the first was enough
                    os.kill(child.pid, sign)
            await asyncio.to_thread(child.join, PATIENCE)
            if child.is_alive():
                raise BrokenPromiseError(f"{how}: the server did not end in {PATIENCE:g} s")
            for agent in agents:
                agent.cancel()
            await asyncio.gather(*agents, return_exceptions=True)
            for writer in clients.held:
                writer.close()

    try:
        asyncio.run(work())
    finally:
        if child.is_alive():
            child.kill()
            child.join()
    said = log.read_text()
    known = {"SIGKILL": (-9,), "twice": (-2, 0)}.get(how, (0,))
    if child.exitcode not in known:
        raise BrokenPromiseError(f"{how}: exit code {child.exitcode}: {said}")
    if "Traceback" in said:
        raise BrokenPromiseError(f"{how}: {said}")
    places = [out, place / "moved", *map(Path, re.findall(r"everything is saved in (\S+)", said))]
    saved = _saved([one for one in places if one.is_dir()])
    lost = sorted(name for name, reward in clients.ended.items() if reward not in saved.get(name, ()))
    if lost:
        raise BrokenPromiseError(f"{how}: {len(lost)} of {len(clients.ended)} ends are lost: {lost[:5]}: {said}")
    if how == "no folder" and said.count("CANNOT BE WRITTEN") != 1:
        raise BrokenPromiseError(f"{how}: it was not said once: {said}")
    if how not in ("no folder", "full disk"):
        _opened_again(out)
    return how


def _saved(folders: list[Path]) -> dict[str, set[float]]:
    """Rewards that stand in folders, by session."""
    from rolltree.tree.store.archive import open_forest

    found: dict[str, set[float]] = {}
    for folder in folders:
        for tree in open_forest(folder) if any(folder.glob("step=*")) else ():
            for node in tree:
                if "reward" in node.scores:
                    found.setdefault(str(node.notes.get("session")), set()).add(node.scores["reward"])
    return found


def _opened_again(out: Path) -> None:
    """A later server goes on behind what is there, and the viewer reads it."""
    from rolltree.analysis.source import open_source
    from rolltree.gateway.tree_folder import TreeFolder
    from rolltree.tree import Tree
    from rolltree.tree.store.archive import open_forest

    before = open_forest(out).trees if any(out.glob("step=*")) else []
    folder = TreeFolder(out, {"policy": "nano"})
    folder.changed(Tree("another", [1, 2]))
    asyncio.run(folder.keep())
    after = open_forest(out).trees
    if after[:-1] != before or after[-1][1] != "another":
        raise BrokenPromiseError(f"{len(before)} trees became {len(after)} when a later server wrote one")
    if len(open_source(out).steps()) != len({step for step, _ in after}):
        raise BrokenPromiseError("the viewer shows other parts than there are")


def gone(rng: Chance, place: Path) -> str:
    """A burst of clients that go while the engine is in a long step: inside, in its queue, or not even there.

    The engine is held, so that what was sampled before they went is known to the token.
    """
    from rolltree.gateway.gateway import Gateway, GatewayBounds
    from rolltree.gateway.server import serving as listening
    from rolltree.generate.search.bestof import BestOf
    from rolltree.generate.searched import SearchedEngine
    from rolltree.tree import Tree
    from tests.engine import tiny

    del place
    streams, searched = rng.random() < 0.5, rng.random() < 0.4
    inside, late, concurrent = rng.randint(0, 30), rng.randint(1, 40), rng.choice((4, 16, 256))

    async def work() -> str:
        local = tiny.engine(max_batch=rng.choice((2, 8, 64)))
        core, trees, free = local._worker.core, list[Tree](), threading.Event()  # pyright: ignore[reportPrivateUsage]
        engine: Any = SearchedEngine(local, BestOf(n=3), on_search=trees.extend) if searched else local
        served = Gateway(engine, "tiny", bounds=GatewayBounds(concurrent=concurrent))
        async with listening(served) as (address, server):
            host, port = address.removeprefix("http://").split(":")

            async def call(name: str) -> asyncio.StreamWriter:
                _, writer = await asyncio.open_connection(host, int(port))
                body = json.dumps({"prompt": "hi", "max_tokens": 100, "stream": streams, "seed": rng.randrange(99)})
                writer.write(f"POST /s/{name}/v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: "
                             f"application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())  # fmt: skip
                return writer

            first = [await call(f"in{k}") for k in range(inside)]
            while inside and not any(s.busy for s in served.sessions.values()):
                await asyncio.sleep(0)
            held = asyncio.get_running_loop().create_future()
            loop = asyncio.get_running_loop()

            def hold() -> None:
                loop.call_soon_threadsafe(held.set_result, None)
                free.wait()

            local._worker.post(hold)  # pyright: ignore[reportPrivateUsage]
            await held
            steps = core.steps
            for writer in first:
                writer.close()
            for k in range(late):
                writer = await call(f"late{k}")
                session = f"late{k}"
                for _ in range(rng.choice((0, 3, 300))):  # a busy one waits in the engine's queue
                    if session not in served.sessions or not served.sessions[session].busy:
                        await asyncio.sleep(0)
                await asyncio.sleep(0)
                writer.transport.abort() if rng.random() < 0.3 else writer.close()
            calm = 0
            while calm < 50:  # until every hang-up was heard
                await asyncio.sleep(0.001)
                waiting = len(server._answering) - sum(bool(s.leaving) for s in served.sessions.values())  # pyright: ignore[reportPrivateUsage]
                calm = calm + 1 if waiting <= 0 else 0
            free.set()
            while any(s.busy for s in served.sessions.values()) or core.busy:
                await asyncio.sleep(0.001)
            more = core.steps - steps
        await local.close()
        if more:
            raise BrokenPromiseError(f"{more} steps were made for clients that had gone")
        kept = sum(len(node) for session in served.sessions.values() for node in session.tree if node.trainable)
        if not searched and kept != sum(session.spent for session in served.sessions.values()):
            raise BrokenPromiseError("tokens that were sampled stand nowhere")
        return f"{'searched' if searched else 'sampled'}, {'streamed' if streams else 'whole'}"

    async def bounded() -> str:
        async with asyncio.timeout(4 * PATIENCE):
            return await work()

    return asyncio.run(bounded())


ATTACKS = (
    Attack("serve", "a server that is ended, killed or has no disk, with clients that hold it up", serving, 3, 64),
    Attack("serve-gone", "bursts of clients that go while the engine is in a long step", gone, 6, 200),
)
