"""The calls of an agent: its sessions or rollouts, and each call with its context, answers and what came of them."""

from __future__ import annotations

import asyncio

from nicegui import ui

from rolltree.analysis.source import RunSource
from rolltree.analysis.text import pieces_of
from rolltree.view.calls import ShownCall, TreeCalls, calls_of
from rolltree.view.links import link, whole
from rolltree.view.outline import Outline, outline
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import Cell, Column, PageTable, heading, number, says
from rolltree.view.prompts import by_spread
from rolltree.view.sessions import ShownSession, sessions_of

ROLLOUTS = (
    Column("rollout"), Column("calls"), Column("contexts", title="conversations, the rollout's own with them"),
    Column("shortened", title="calls whose history was shortened (compaction)"), Column("tokens"),
    Column("thrown away", title="tokens of answers that nothing was built on"),
    Column("forked at", title="the call up to which it replays another rollout"), Column("reward"),
    Column("how it ended", "words"),
)  # fmt: skip
CALLS = (
    Column("answer"), Column("call"), Column("session", "words"), Column("how", "words", title="to the calls before"),
    Column("asked"), Column("prompt", title="tokens of the whole prompt"),
    Column("as sampled", title="tokens of it that the policy sampled before: the very ids, never encoded again"),
    Column("tokens"), Column("birth", "words"), Column("says", "words"), Column("came of it", "words"),
    Column("events", "words"),
)  # fmt: skip


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/calls", response_timeout=300)
    async def page(  # pyright: ignore[reportUnusedFunction]
        run: str = "", step: str = "", tree: str = ""
    ) -> None:
        async def body() -> None:
            source, at = site.get(run), whole("step", step)
            up = link("tree", run=source.name, step=at, tree=tree)
            with frame(Crumb(f"calls of {tree}", source, at, up, trail=((tree or "tree", up),))):
                await shown(lambda: _draw(source, at, tree))

        await paged(body)


async def _draw(source: RunSource, step: int | None, id: str) -> None:
    archive = source.archive(step)
    tree = await asyncio.to_thread(outline, archive, id or by_spread(archive)[0])
    pieces = await asyncio.to_thread(pieces_of, source)
    heading(f"Calls of {tree.id}", 1)
    known = await asyncio.to_thread(calls_of, tree, pieces)
    if not known.calls:
        says("nothing was sampled in this tree, so there are no calls")
        return
    if pieces.note:
        says(pieces.note)
    sessions = await asyncio.to_thread(sessions_of, tree, known)
    _rollouts(source, step, tree, sessions)
    _calls(source, step, tree, known)


def _rollouts(source: RunSource, step: int | None, tree: Outline, sessions: list[ShownSession]) -> None:
    many = sum(one.shortened for one in sessions)
    heading("Sessions" if sessions and sessions[0].node is None else "Rollouts")
    says(
        f"{len(sessions):,} of them, {sum(one.calls for one in sessions):,} calls, {many:,} with a shortened history, "
        f"{sum(one.forked is not None for one in sessions):,} forked by replay"
    )
    here = {"run": source.name, "step": step, "tree": tree.id}
    PageTable(ROLLOUTS, [
        [
            Cell(one.name, "" if one.node is None else link("tree", **here, node=one.node)), Cell(f"{one.calls}"),
            Cell(f"{one.contexts}"), Cell(f"{one.shortened or ''}"), Cell(f"{one.tokens:,}"),
            Cell(f"{one.thrown or ''}"), Cell("" if one.forked is None else f"call {one.forked}"),
            Cell(number(one.reward)), Cell(one.end),
        ]
        for one in sessions
    ], "rollouts")  # fmt: skip


def _calls(source: RunSource, step: int | None, tree: Outline, known: TreeCalls) -> None:
    heading("Calls, with each of their answers")
    if known.left_out:
        says(f"{known.left_out:,} more nodes of the policy are left out; choose a tree with fewer")
    here = {"run": source.name, "step": step, "tree": tree.id}
    names = any(call.session for call in known.calls)
    PageTable([c for c in CALLS if names or c.text != "session"], [
        [cell for c, cell in zip(CALLS, row, strict=True) if names or c.text != "session"]
        for call in known.calls for row in _rows(call, here)
    ], "calls")  # fmt: skip


def _rows(call: ShownCall, here: dict[str, str | int | None]) -> list[list[Cell]]:
    told = "; ".join((*(["the template rewrote earlier turns"] if call.rewritten else []), *call.why))
    asked = Cell(f"node {call.asked}", link("tree", **here, node=call.asked))
    return [
        [
            Cell(f"node {reply.node}", link("tree", **here, node=reply.node)), Cell(f"{call.number}"),
            Cell(call.session), Cell(call.how), asked, Cell(f"{call.prompt:,}"), Cell(f"{call.sampled:,}"),
            Cell(f"{reply.tokens:,}"), Cell("" if reply.birth == "boundary" else reply.birth), Cell(reply.text),
            Cell(reply.end), Cell("" if i else told),
        ]
        for i, reply in enumerate(call.replies)
    ]  # fmt: skip
