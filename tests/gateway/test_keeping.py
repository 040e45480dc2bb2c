"""What a server owes its sessions: each is on the disk when its end is answered, and nobody's leaving holds it up."""

import asyncio
import json
import pickle
import threading
from contextlib import asynccontextmanager

import aiohttp
import pytest

from rolltree.analysis.source import open_source
from rolltree.gateway import tree_folder
from rolltree.gateway.gateway import Gateway, GatewayBounds
from rolltree.gateway.server import Server, serving
from rolltree.gateway.tree_folder import FolderError, TreeFolder
from rolltree.generate.search.bestof import BestOf
from rolltree.generate.searched import SearchedEngine
from rolltree.tree import Tree
from rolltree.tree.forest import assert_conserved
from rolltree.tree.store import atomic
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import load
from tests.engine import tiny
from tests.gateway.policies import endless, letters

ASKED = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12, "seed": 3}
LONG = {**ASKED, "max_tokens": 10**6}
ABOUT = {"policy": "tiny"}


def saved(folder):
    """Ends of sessions that stand there: reward, or none, by session."""
    found = {}
    for tree in open_forest(folder):
        for leaf in tree.leaves():
            if leaf.status in ("done", "failed") and "session" in leaf.notes:
                found[leaf.notes["session"]] = leaf.scores.get("reward", leaf.status)
    return found


@asynccontextmanager
async def client(engine, out=None, searches=None, **bounds):
    gateway = Gateway(engine, "tiny", bounds=GatewayBounds(**bounds), out=out, searches=searches)
    async with serving(gateway) as (address, _), aiohttp.ClientSession() as http:

        async def post(path, body):
            async with http.post(address + path, json=body) as answer:
                told = await answer.json()
                assert answer.status == 200, told
                return told

        yield gateway, post, address
    await engine.close()


async def raw(address, body, *, of=None, path="/v1/chat/completions"):
    """A connection that has sent a call, or the beginning of one that is to have `of` bytes; it reads nothing."""
    host, port = address.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {of or len(text)}\r\n\r\n".encode() + text)
    await writer.drain()
    return writer


async def until(told):
    while not told():
        await asyncio.sleep(0.001)


def test_a_session_is_on_the_disk_when_its_end_is_answered(tmp_path):
    async def work():
        async with client(letters(), TreeFolder(tmp_path / "out", ABOUT)) as (_, post, _):
            for name, path, body in (
                ("a", "reward", {"reward": 0.5}),
                ("b", "end", {"reward": 2}),
                ("c", "end", {"failed": "gone"}),
            ):
                await post("/sessions", {"session": name, "item": "one item"})
                await post(f"/s/{name}/v1/chat/completions", {**ASKED, "seed": ord(name)})
                await post(f"/s/{name}/{path}", body)
                now = saved(tmp_path / "out")
                assert name in now, "a kill here would have lost it"
            assert now == {"a": 0.5, "b": 2.0, "c": "failed"}
            (tree,) = open_forest(tmp_path / "out")
            assert_conserved([tree], settled=True)
            assert open_source(tmp_path / "out").steps() == [1]

    asyncio.run(work())


def test_sessions_that_end_without_a_word_are_kept_and_open_ones_too(tmp_path):
    async def work():
        async with client(letters(), TreeFolder(tmp_path / "out", ABOUT), idle_seconds=0.0) as (gateway, post, _):
            await post("/s/silent/v1/chat/completions", ASKED)
            await asyncio.sleep(0.001)
            gateway.expire()
            await gateway.keep()
            assert saved(tmp_path / "out") == {"silent": "failed"}
            await post("/s/open/v1/chat/completions", ASKED)
            await gateway.keep()
            assert "open" not in saved(tmp_path / "out")
            await gateway.keep(answers=True)
            assert saved(tmp_path / "out")["open"] == "done"
        assert saved(tmp_path / "out") == {"silent": "failed", "open": "failed"}, "the end of the server fails it"

    asyncio.run(work())


def test_many_ends_at_once_share_writes_and_all_stand_there(tmp_path, monkeypatch):
    writes = []
    save = tree_folder.save
    monkeypatch.setattr(tree_folder, "save", lambda *a, **k: (writes.append(1), save(*a, **k))[1])

    async def work():
        async with client(letters(), TreeFolder(tmp_path / "out", ABOUT)) as (_, post, _):

            async def agent(k):
                await post(f"/s/{k}/v1/chat/completions", {**ASKED, "seed": k})
                await post(f"/s/{k}/reward", {"reward": k})

            await asyncio.gather(*(agent(k) for k in range(80)))

    asyncio.run(work())
    assert saved(tmp_path / "out") == {str(k): float(k) for k in range(80)}
    assert len(open_forest(tmp_path / "out").trees) == 80, "no tree stands twice"
    assert len(list((tmp_path / "out").glob("step=*"))) == 3
    assert len(writes) < 80


def test_a_later_server_goes_on_behind_what_is_there(tmp_path, monkeypatch):
    out = tmp_path / "out"

    async def work(reward):
        async with client(letters(), TreeFolder(out, ABOUT)) as (_, post, _):
            await post("/s/a/v1/chat/completions", ASKED)
            await post("/s/a/reward", {"reward": reward})

    asyncio.run(work(1))
    first = (out / "step=1" / "nodes.parquet").read_bytes()
    # A writer that died between two renames, where names cannot be exchanged.
    (out / "step=1").rename(atomic.set_aside(out / "step=1"))
    asyncio.run(work(2))
    assert (out / "step=1" / "nodes.parquet").read_bytes() == first
    assert open_forest(out).trees == [(1, "a"), (2, "a")]
    assert [leaf.scores["reward"] for step in (1, 2) for leaf in load(out / f"step={step}")["a"].leaves()] == [1, 2]


def test_a_folder_that_takes_nothing_or_is_anothers_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(FolderError, match=r"--out .*file cannot be written \(.*\); give another place"):
        TreeFolder(tmp_path / "file", ABOUT)
    with pytest.raises(FolderError, match=r"cannot be written \(Not a directory\)"):
        TreeFolder(tmp_path / "file" / "below", ABOUT)
    with pytest.raises(FolderError, match="is not empty and holds nothing of serve; give another name"):
        TreeFolder(tmp_path, ABOUT)
    TreeFolder(tmp_path / "mine", ABOUT)
    with pytest.raises(FolderError, match="begun with policy='tiny', and now policy is 'other'; give another name"):
        TreeFolder(tmp_path / "mine", {"policy": "other"})
    (tmp_path / "mine" / "serve.json").write_text("{")
    with pytest.raises(FolderError, match="cannot be read"):
        TreeFolder(tmp_path / "mine", ABOUT)


def test_a_folder_that_takes_no_more_is_said_once_and_sessions_go_elsewhere(tmp_path, monkeypatch, capsys):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tree_folder.tempfile, "tempdir", str(tmp_path / "tmp"))
    out = TreeFolder(tmp_path / "out", ABOUT)

    async def work():
        async with client(letters(), out) as (_, post, _):
            for name in "abc":
                await post(f"/s/{name}/v1/chat/completions", ASKED)
                await post(f"/s/{name}/reward", {"reward": 1})
                if name == "a":
                    (tmp_path / "out").rename(tmp_path / "moved")
                    (tmp_path / "out").write_text("no folder any more")

    asyncio.run(work())
    assert saved(tmp_path / "moved") == {"a": 1.0}
    assert saved(out.elsewhere) == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert out.elsewhere.parent == tmp_path / "tmp"
    said = capsys.readouterr().err
    assert said.count("CANNOT BE WRITTEN (File exists)") == 1
    assert str(out.elsewhere) in said
    assert out.unsaved == 0


def test_where_nothing_can_be_written_the_server_goes_on_and_tries_again(tmp_path, monkeypatch, capsys):
    full, save = [True], tree_folder.save

    def saving(*told, **knobs):
        if full:
            raise OSError(28, "No space left on device")
        return save(*told, **knobs)

    monkeypatch.setattr(tree_folder, "save", saving)
    out = TreeFolder(tmp_path / "out", ABOUT)

    async def work():
        async with client(letters(), out) as (_, post, _):
            for name in "abc":
                await post(f"/s/{name}/v1/chat/completions", ASKED)
                await post(f"/s/{name}/reward", {"reward": 1})
                if name == "b":
                    assert out.unsaved == 2
                    full.clear()

    asyncio.run(work())
    assert saved(tmp_path / "out") == {"a": 1.0, "b": 1.0, "c": 1.0}
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_a_write_whose_client_hung_up_is_finished_before_the_next_begins(tmp_path, monkeypatch):
    """A part is never written twice at a time, and an end that nobody waits for stands there all the same."""
    out, inside, most, save = TreeFolder(tmp_path / "out", ABOUT), [], [], tree_folder.save

    def saving(*told, **knobs):
        inside.append(1)
        most.append(len(inside))
        try:
            return save(*told, **knobs)
        finally:
            inside.pop()

    monkeypatch.setattr(tree_folder, "save", saving)

    async def work():
        trees = [Tree(str(k), [1, 2]) for k in range(20)]
        for tree in trees:
            out.changed(tree)
            task = asyncio.create_task(out.keep())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            task.cancel()
        await out.keep()

    asyncio.run(work())
    assert {id for _, id in open_forest(tmp_path / "out").trees} == {str(k) for k in range(20)}
    assert max(most) == 1


def test_trees_may_grow_while_they_are_written(tmp_path, monkeypatch):
    out, save, seen = TreeFolder(tmp_path / "out", ABOUT), tree_folder.save, []
    tree = Tree("t", [1, 2])

    def saving(trees, *told, **knobs):
        tree.extend(tree.root, [3], role="policy", status="done")
        seen.append([len(one) for one in trees])
        return save(trees, *told, **knobs)

    monkeypatch.setattr(tree_folder, "save", saving)
    out.changed(tree)
    asyncio.run(out.keep())
    assert seen == [[1]]
    assert len(load(tmp_path / "out" / "step=1")["t"]) == 1
    assert pickle.loads(pickle.dumps(tree)).leaves()


@pytest.mark.parametrize("streams", [False, True])
def test_a_burst_of_clients_that_go_leaves_no_call_behind(streams):
    """Those that are sampled, those that wait for a place, and those that were just sent: each is stopped, and what it
    had sampled is recorded."""

    async def work():
        async with client(endless(), concurrent=8) as (gateway, post, address):
            going = [await raw(address, {**LONG, "stream": streams}, path=f"/s/{k}/v1/completions" if k % 2 else
                               f"/s/{k}/v1/chat/completions") for k in range(0, 60, 2)]  # fmt: skip
            await until(lambda: sum(s.busy for s in gateway.sessions.values()) == 8)
            engine = gateway.engine
            for writer in going:
                writer.close()
            going = [await raw(address, {**LONG, "stream": streams}, path=f"/s/{k}/v1/chat/completions")
                     for k in range(1, 60, 2)]  # fmt: skip
            for writer in going:
                writer.close()
            told = await post("/s/next/v1/chat/completions", ASKED)
            assert told["usage"]["completion_tokens"] == 12
            await until(lambda: not any(s.busy for s in gateway.sessions.values()))
            for session in gateway.sessions.values():
                nodes = [n for n in session.tree if n.trainable]
                assert len(session.record.calls) == len(nodes), "what was sampled stands there"
                assert session.spent == session.record.sampled == sum(len(n) for n in nodes)
                assert all(n.finish == "abort" and len(n) < 10**6 for n in nodes if session.name != "next")
            assert engine is gateway.engine

    asyncio.run(work())


@pytest.mark.parametrize("searched", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_calls_that_come_and_go_during_one_long_step_are_never_sampled(streams, searched):
    """They wait in the engine's queue, or were not even put there, when their clients have gone."""

    async def work():
        local, trees = tiny.engine(), []
        core, held = local._worker.core, threading.Event()
        engine = SearchedEngine(local, BestOf(n=3), on_search=trees.extend) if searched else local
        body = {"prompt": "hi", "max_tokens": 100, "stream": streams}
        async with client(engine) as (gateway, _, address):
            sessions = gateway.sessions
            local._worker.post(lambda: held.wait() and None)
            for k in range(12):
                writer = await raw(address, body, path=f"/s/{k}/v1/completions")
                await until(lambda: str(k) in sessions and sessions[str(k)].busy)  # noqa: B023
                await asyncio.sleep(0)
                writer.close()
                await until(lambda: sessions[str(k)].leaving)  # noqa: B023
            held.set()
            await until(lambda: not any(s.busy for s in sessions.values()))
            assert not core.busy
            assert [s.spent for s in sessions.values()] == [0] * 12
            assert sum(len(n) for tree in trees for n in tree if n.trainable) == 0

    asyncio.run(work())


def test_a_broken_pipe_and_a_hang_up_at_once_lose_no_token():
    """A stream finds its client gone by itself, and is cancelled while it writes down what it had."""

    async def work():
        engine = endless()
        gateway = Gateway(engine, "tiny")
        session = gateway.open("a")
        gone = asyncio.Event()

        async def on_text(text):
            gone.set()
            raise ConnectionResetError

        from rolltree.engine.protocol import Sampling
        from rolltree.gateway.ask import Ask
        from rolltree.gateway.session import Draw

        task = asyncio.create_task(session.call(Ask(text="hi"), Draw(Sampling(max_tokens=10**6)), on_text))
        await gone.wait()
        while not session.leaving:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await until(lambda: not session.busy)
        (node,) = session.record.calls[0].answers.values()
        assert len(node) == session.spent > 0
        assert node.status == "pruned"
        await engine.close()

    asyncio.run(work())


def test_the_end_waits_for_no_client(tmp_path):
    """Half a body, half a head, a stream that nobody reads, samples without end, and calls that wait for a place."""
    out = TreeFolder(tmp_path / "out", ABOUT)

    async def work():
        engine = endless()
        gateway = Gateway(engine, "tiny", bounds=GatewayBounds(concurrent=3), out=out)
        async with asyncio.timeout(30):  # a client would be waited for at least twice as long
            async with serving(gateway) as (address, server):
                held = [await raw(address, ASKED, of=10_000, path=f"/s/half{k}/v1/chat/completions") for k in range(3)]
                held += [await raw(address, {**LONG, "stream": True}, path="/s/slow/v1/chat/completions")]
                held += [await raw(address, LONG, path=f"/s/long{k}/v1/chat/completions") for k in range(5)]
                host, port = address.removeprefix("http://").split(":")
                _, head = await asyncio.open_connection(host, int(port))
                head.write(b"POST /v1/chat")
                await until(lambda: sum(s.busy for s in gateway.sessions.values()) == 3)
                await until(lambda: len(server._answering) == 9)
        await engine.close()
        for writer in (*held, head):
            writer.close()
        sampled = [s for s in gateway.sessions.values() if s.record.calls]
        assert len(sampled) == 3
        assert all("closed" in s.ended and s.spent == s.record.sampled for s in sampled)
        there = [tree for tree in open_forest(tmp_path / "out") if any(n.trainable for n in tree)]
        assert sum(len(n) for tree in there for n in tree if n.trainable) == sum(s.spent for s in sampled)
        assert_conserved(there, settled=True)

    asyncio.run(work())


def test_a_call_that_comes_while_the_server_ends_is_refused():
    async def work():
        async with client(letters()) as (gateway, _, _address):
            server = Server(gateway)
            await server.end()
            from aiohttp.test_utils import TestClient, TestServer

            async with TestClient(TestServer(server.app())) as late:
                answer = await late.post("/v1/chat/completions", json=ASKED)
                assert answer.status == 503
                assert "ending" in (await answer.json())["error"]["message"]

    asyncio.run(work())
