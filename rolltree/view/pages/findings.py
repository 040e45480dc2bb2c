"""What the doctor found in a run, each finding linked to the nodes that show it."""

from __future__ import annotations

import asyncio

from nicegui import ui

from rolltree.analysis.source import RunSource
from rolltree.view.findings import ShownFinding, findings
from rolltree.view.links import link
from rolltree.view.pages.frame import Crumb, Site, live, paged
from rolltree.view.pages.parts import facts, heading, says
from rolltree.view.words import shown as in_words

MOST = 300
"""Findings on the page; a run that has more has them at every step."""


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/findings", response_timeout=60)
    async def page(run: str = "") -> None:  # pyright: ignore[reportUnusedFunction]
        async def whole() -> None:
            source = site.get(run)
            await live(
                source, Crumb(f"findings of {source.name}", source, up=link("run", run=source.name)),
                f"What the doctor found in {source.name}", _draw,
            )  # fmt: skip

        await paged(whole)


async def _draw(source: RunSource) -> None:
    found = await asyncio.to_thread(findings, source)
    if found.note:
        says(found.note)
    for finding in found.found[:MOST]:
        draw_finding(source, finding, level=2)
    if len(found.found) > MOST:
        says(f"{len(found.found) - MOST} more are in {source.path / 'findings.jsonl'}")


def draw_finding(source: RunSource, finding: ShownFinding, *, links: bool = True, level: int = 3) -> None:
    """One finding with its numbers, its fix and the nodes that show it."""
    grave = finding.severity in ("bad", "error", "critical")
    with ui.element("div").classes("finding" + (" grave" if grave else "")):
        at = "" if finding.step is None else f" at step {finding.step}"
        heading(f"{finding.name}{at} · {finding.severity}", level)
        ui.label(finding.message)
        if finding.numbers:
            facts([(name, in_words(value)) for name, value in finding.numbers.items()])
        if finding.fix:
            ui.label(f"Suggested fix: {finding.fix}").classes("soft")
        if links:
            with ui.element("div").classes("bar"):
                for place in finding.nodes[:40]:
                    where = place.tree if place.node is None else f"{place.tree} node {place.node}"
                    target = link("tree", run=source.name, step=place.step, tree=place.tree, node=place.node)
                    ui.link(where, target).classes("row-link")
