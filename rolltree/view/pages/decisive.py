"""The decisive tokens of a step: forks ranked by the change in success they made."""

from __future__ import annotations

import asyncio

from nicegui import ui

from rolltree.analysis.decisive import ShownBranch, ShownFork, interval, newest_step, percent, shown_decisions
from rolltree.analysis.source import RunSource, nothing
from rolltree.analysis.text import pieces_of
from rolltree.view.links import link, whole
from rolltree.view.pages.frame import Crumb, Site, frame, paged, shown
from rolltree.view.pages.parts import Words, heading, says


def add(site: Site) -> None:
    """Register the page."""

    @ui.page("/decisive", response_timeout=300)
    async def page(run: str = "", step: str = "", tree: str = "") -> None:  # pyright: ignore[reportUnusedFunction]
        async def body() -> None:
            source = site.get(run)
            at = whole("step", step) if step else newest_step(source)
            up = link("tree", run=source.name, step=at, tree=tree) if tree else link("run", run=source.name)
            with frame(Crumb(f"decisive tokens of {source.name}", source, at, up)):
                await shown(lambda: _draw(source, at, tree))

        await paged(body)


async def _draw(source: RunSource, step: int | None, tree: str) -> None:
    steps = source.steps()
    heading(f"Decisive tokens of {tree or source.name}" + ("" if step is None else f", step {step}"), 1)
    if not steps:
        says(nothing(source))
        return
    if len(steps) > 1:
        with ui.element("div").classes("bar"):
            ui.select(
                {s: f"step {s}" for s in steps}, value=step, label="step",
                on_change=lambda e: ui.navigate.to(link("decisive", run=source.name, step=e.value)),
            ).props("dense outlined").classes("which-step")  # fmt: skip
    pieces = await asyncio.to_thread(pieces_of, source)
    found = await asyncio.to_thread(shown_decisions, source, step, pieces, tree=tree)
    if pieces.note:
        says(pieces.note)
    says(found.sentence)
    for fork in found.forks:
        _draw_fork(source, step, fork)
    if found.total > len(found.forks):
        way = "" if step is None else f" --step {step}"
        says(f"{found.total - len(found.forks):,} more: rolltree decisive {source.path}{way} --top {found.total}")


def _draw_fork(source: RunSource, step: int | None, shown_fork: ShownFork) -> None:
    fork = shown_fork.fork
    with ui.element("section").classes("decision"):
        with ui.element("h2"):
            target = link("tree", run=source.name, step=step, tree=fork.tree, node=fork.decisive.node)
            ui.link(shown_fork.sentence, target).classes("row-link")
        others = f", {fork.others} more branches with one rollout" if fork.others else ""
        ui.label(f"{shown_fork.item} · {fork.leaves} rollouts came here{others}").classes("soft")
        with ui.element("div").classes("decision-text"):
            Words(f"…{shown_fork.context}")
        with ui.element("table").classes("grid"):
            with ui.element("thead"), ui.element("tr"):
                for name in ("branch", "success", "", "rollouts", "independent", "change, points (95 %)"):
                    with ui.element("th").classes("words" if name == "branch" else ""):
                        Words(name)
            with ui.element("tbody"):
                for branch in shown_fork.branches:
                    _draw_branch(branch, fork.before)


def _draw_branch(shown_branch: ShownBranch, before: float) -> None:
    branch = shown_branch.branch
    with ui.element("tr").classes("clear" if branch.clear else ""):
        with ui.element("td").classes("words"):
            Words(shown_branch.token).classes("decision-token")
            Words(shown_branch.rest).classes("soft mono")
            if branch.forced or branch.role != "policy":
                Words(" forced" if branch.forced else f" {branch.role}").classes("soft")
        with ui.element("td"):
            Words(percent(branch.after))
        with ui.element("td"), ui.element("div").classes("rate"):
            ui.element("div").classes("rate-after").style(f"width:{100 * branch.after:.1f}%")
            ui.element("div").classes("rate-before").style(f"left:{100 * before:.1f}%")
        for text in (str(branch.leaves), f"{branch.continuations:.3g}", interval(branch)):
            with ui.element("td"):
                Words(text)
