"""The page of an agent's calls: sessions of a server and rollouts of an agent, told from what is in their trees."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rolltree.analysis.source import open_source
from rolltree.analysis.text import Pieces
from rolltree.gateway.agents.task import AgentTask
from rolltree.generate.aside import ASIDE
from rolltree.testing.tiny import tiny_engine
from rolltree.tree import Forest
from rolltree.tree.store.parquet import load, save
from rolltree.view.calls import calls_of, is_agents
from rolltree.view.outline import outline
from rolltree.view.rows import events_of
from rolltree.view.sessions import sessions_of
from tests.gateway import agents
from tests.gateway.policies import letters
from tests.gateway.test_agents import NATIVE, Forks, grown
from tests.gateway.test_server import client
from tests.view.conftest import PATIENCE, Viewer

IDS = Pieces(None)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def talk(c) -> None:
    """One session that does what agents do, and one that fails."""

    async def call(messages, seed, name="a"):
        told = await c.post(f"/s/{name}/v1/chat/completions", {"messages": messages, "max_tokens": 6, "seed": seed})
        return told["choices"][0]["message"]

    await c.post("/sessions", {"session": "a", "item": "q"})
    await c.post("/sessions", {"session": "b", "item": "q"})
    start = [user("é the")]
    first = await call(start, 1)
    longer = [*start, first, user("on")]
    second = await call(longer, 2)
    await call(longer, 3)
    await call([*start, first, user("another way")], 4)
    await call([*start, {**first, "content": "never said"}, user("on")], 5)
    await call([*start, user("in short")], 6)
    await call([user("help"), user("me")], 7)
    await call([*longer, second, user("end")], 8)
    await c.post("/s/a/reward", {"reward": 0.75})
    await call(start, 9, "b")
    await c.post("/s/b/end", {"failed": "the program crashed"})


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A forest of two sessions, and one of an agent that was forked and asks helpers."""
    home = tmp_path_factory.mktemp("calls")

    async def work() -> Forest:
        async with client(letters()) as c:
            await talk(c)
            return c.gateway.forest

    save(asyncio.run(work()), home / "served")
    save(
        grown(tiny_engine(), AgentTask(agents.helped, task=NATIVE), Forks(), items=2, seed=7),
        home / "agent",
        states="drop",
    )
    return home


def opened(folder: Path, tree: str = ""):
    archive = open_source(folder).archive(None)
    return outline(archive, tree or archive.trees[0][1])


def test_each_call_of_a_session_says_how_it_stands_to_those_before(recorded: Path):
    tree = opened(recorded / "served")
    known = calls_of(tree, IDS)
    mine = [call for call in known.calls if call.session == "a"]
    assert [call.number for call in mine] == list(range(8))
    assert [call.how for call in mine] == [
        "begins", "goes on", "asked again", "branches off", "edited", "shortened", "begins", "goes on",
    ]  # fmt: skip
    (forest,) = load(recorded / "served")
    by_call = {
        (n.notes["session"], n.notes["call"]): n for n in forest if n.trainable and n.notes.get("call") is not None
    }
    for call in mine:
        whole = forest.prefix(forest[call.asked])
        assert call.prompt == len(whole)
        assert forest[by_call["a", call.number].id].role == "policy"
    sampled = {call.number: call.sampled for call in mine}
    assert sampled[0] == sampled[5] == sampled[6] == 0
    assert sampled[1] == sampled[2] == sampled[3] == mine[0].replies[0].tokens
    assert sampled[7] == mine[0].replies[0].tokens + mine[1].replies[0].tokens
    assert mine[1].replies[0].end == "goes on"
    assert mine[2].replies[0].end.startswith("dropped: asked again") or "reward" in mine[2].replies[0].end


def test_sessions_are_counted_with_their_contexts_outcomes_and_failures(recorded: Path):
    tree = opened(recorded / "served")
    one, other = sessions_of(tree, calls_of(tree, IDS))
    assert (one.name, one.calls, one.contexts, one.shortened, one.reward) == ("a", 8, 5, 1, 0.75)
    (forest,) = load(recorded / "served")
    assert one.tokens + other.tokens == sum(len(n) for n in forest if n.trainable)
    assert (other.calls, other.end) == (1, "the program crashed")
    assert other.reward != other.reward


def test_rollouts_of_an_agent_have_their_forks_and_contexts(recorded: Path):
    forest = load(recorded / "agent")
    for kept in forest:
        tree = opened(recorded / "agent", kept.id)
        known = calls_of(tree, IDS)
        assert sum(r.tokens for call in known.calls for r in call.replies) == sum(len(n) for n in kept if n.trainable)
        rollouts = sessions_of(tree, known)
        own = [leaf for leaf in kept.leaves() if not leaf.notes.get(ASIDE)]
        assert [one.node for one in rollouts] == [leaf.id for leaf in own]
        forked = [one for one in rollouts if one.forked is not None]
        assert 0 < len(forked) < len(rollouts)
        # Two calls of its own, and behind each two helpers that ask twice: the second time they ask the same again.
        assert (rollouts[0].calls, rollouts[0].contexts) == (2 + 2 * 4, 1 + 2)
        ends = [r.end for call in known.calls for r in call.replies if r.end != "goes on"]
        assert len(ends) == len(kept.leaves())
        assert all("reward" in end or end.startswith("dropped: asked again") for end in ends)
        helpers = [call for call in known.calls if call.how == "begins" and call.number > 0]
        assert helpers
        assert all(one.reward == leaf.scores["reward"] for one, leaf in zip(rollouts, own, strict=True))


def test_a_tree_without_an_agent_has_no_calls_page(recorded: Path, real_run: Path):
    source = open_source(real_run)
    archive = source.archive(1)
    assert not is_agents("countdown", events_of(archive, 0))
    assert is_agents("", events_of(open_source(recorded / "served").archive(None), 0))
    assert is_agents("agent:echo", [])


def test_the_page_in_a_browser(recorded: Path, started, browser):
    viewer: Viewer = started(recorded)
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(PATIENCE)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(viewer.address + "/tree?run=served&tree=q")
    page.click(".calls-link")
    page.wait_for_selector("table[aria-label=calls] tbody tr")
    assert page.locator("h1").all_inner_texts() == ["Calls of q"]
    said = page.locator(".says").all_inner_texts()
    assert any("2 of them, 9 calls, 1 with a shortened history" in one for one in said)
    sessions = page.locator("table[aria-label=rollouts] tbody tr").all_inner_texts()
    assert sessions[0].split("\t")[:4] == ["a", "8", "5", "1"]
    assert "the program crashed" in sessions[1]
    assert page.locator("table[aria-label=calls] tbody tr").count() == 9
    page.click("table[aria-label=calls] tbody tr >> nth=4 >> a >> nth=0")
    page.wait_for_selector(".icicle[data-drawn]")
    assert "node=" in page.url
    page.goto(viewer.address + "/calls?run=agent")
    page.wait_for_selector("table[aria-label=rollouts] a")
    assert "call " in page.locator("table[aria-label=rollouts] tbody").inner_text()
    assert wrong == []
    page.close()
