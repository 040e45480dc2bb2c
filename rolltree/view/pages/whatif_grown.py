"""The page of one what-if: the tree with its new branches, drawn again while it grows, and the credit old and new."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from nicegui import ui

from rolltree.analysis.source import RunSource
from rolltree.analysis.text import pieces_of
from rolltree.analysis.whatif_saved import SavedWhatIf, ShownWhatIf, saved_whatif, shown_whatif, signed
from rolltree.errors import RolltreeError
from rolltree.view.icicle import Icicle, icicle
from rolltree.view.links import link
from rolltree.view.model import excerpts
from rolltree.view.outline import Outline, outline
from rolltree.view.pages.frame import watch
from rolltree.view.pages.parts import (
    Cell,
    Column,
    PageTable,
    Picture,
    button,
    heading,
    legend,
    marks_legend,
    says,
    trouble,
)
from rolltree.view.whatif_jobs import WhatIfJob, WhatIfJobs

OFTEN = 0.5
"""Seconds between two looks at a tree that grows."""
BADGES = {"growing": "running", "done": "done", "cancelled": "mild", "failed": "grave"}


class GrownPage:
    """The page of one what-if, drawn again while it grows."""

    def __init__(self, jobs: WhatIfJobs | None, source: RunSource, name: str, credit: str) -> None:
        self.jobs, self.run, self.name, self.credit = jobs, source, name, credit
        self.picture: Picture | None = None

    async def start(self) -> None:
        """Draw, and follow."""
        heading(f"What if {self.name}, {self.run.name}", 1)
        self.state = ui.element("div").props('role="status"')
        self.told = ui.element("div")
        self.place = ui.element("div").classes("picture")
        self.legend = ui.element("div")
        self.table = ui.element("div")
        since = self.stamp()
        await self.draw()
        watch(self.stamp, self.draw, since, OFTEN)

    def stamp(self) -> Any:
        """Changes with the tree, its state, and the process that grows it."""
        job = self.job
        ended = None if job is None else job.growing
        try:
            saved = saved_whatif(self.run, self.name)
        except RolltreeError:
            return ended
        return ended, saved.about.now, saved.source(self.run).archive_stamp()

    @property
    def job(self) -> WhatIfJob | None:
        """The process, where this viewer started it."""
        return None if self.jobs is None else self.jobs.of(self.run, self.name)

    async def draw(self) -> None:
        """Show it as it stands."""
        job = self.job
        try:
            saved = saved_whatif(self.run, self.name)
            made, tree, drawn = await asyncio.to_thread(self._read, saved)
        except RolltreeError as error:
            self._say(None, _why_not(job, str(error)))
            return
        self._say(saved, saved.about.trouble or ("" if job is None else job.trouble))
        self.told.clear()
        with self.told:
            says(f"{made.place}; {saved.about.said}.")
            ui.label(made.sentence).classes("whatif-sentence")
        self._draw_picture(tree, drawn, saved)
        self.table.clear()
        with self.table:
            self._draw_table(made, saved, tree)

    def _read(self, saved: SavedWhatIf) -> tuple[ShownWhatIf, Outline, Icicle]:
        grown = saved.source(self.run)
        pieces = pieces_of(grown)
        made = shown_whatif(self.run, saved, pieces, self.credit or None)
        tree = outline(grown.archive(None), saved.about.tree)
        colour = "reward" if "reward" in tree.colourings else "author"
        start = tree.row(saved.about.start)
        drawn = icicle(tree, colour, selected=start, excerpt=excerpts(tree, pieces))
        fresh = saved.about.fresh
        rects = tuple(
            replace(r, marks=(*r.marks, "new")) if r.key[0] == "n" and fresh(r.node) else r for r in drawn.rects
        )
        return made, tree, replace(drawn, rects=rects)

    def _say(self, saved: SavedWhatIf | None, wrong: str) -> None:
        job, now = self.job, "starting" if saved is None else saved.about.now
        self.state.clear()
        with self.state:
            if wrong:
                trouble(wrong)
                return
            with ui.element("div").classes("bar"):
                ui.label(now).classes(f"badge whatif-state {'running' if saved is None else BADGES[saved.about.now]}")
                if job is not None and can_be_cancelled(job, now):
                    button("cancel", job.cancel, name="cancel")

    def _draw_picture(self, tree: Outline, drawn: Icicle, saved: SavedWhatIf) -> None:
        selected = drawn.holder(saved.about.start)

        def pick(key: str) -> None:
            ui.navigate.to(self._open(tree.id, int(key[1:])))

        if self.picture is None:
            with self.place:
                self.picture = Picture(drawn, selected, pick)
        else:
            self.picture.show(drawn, selected)
        self.legend.clear()
        with self.legend:
            legend(drawn.scale, "width: leaves")
            marks_legend(drawn)

    def _open(self, tree: str, node: int) -> str:
        return link("tree", run=f"{self.run.name}/whatif/{self.name}", tree=tree, node=node)

    def _draw_table(self, made: ShownWhatIf, saved: SavedWhatIf, tree: Outline) -> None:
        about = saved.about
        if made.trouble:
            says(made.trouble)
        heading(f"Under {made.credit or 'no credit'}, on this tree alone")
        columns = [Column("branch"), Column("text", "words"), Column("right below"),
                   Column("credit before", title="mean advantage of its tokens in the tree as it was"),
                   Column("credit now", title="mean advantage of the same tokens, with the new leaves")]  # fmt: skip
        rows = [
            [Cell(b.name, self._open(tree.id, b.branch.node.id)), Cell(b.text), Cell(b.success),
             Cell(signed(b.branch.before)), Cell(signed(b.branch.after))] for b in made.branches
        ]  # fmt: skip
        PageTable(columns, rows, "branches")
        with ui.element("div").classes("bar"):
            ui.link("the grown tree", self._open(tree.id, about.start)).classes("grown-link")
            ui.link("the tree as it was", link("tree", run=self.run.name, step=about.step, tree=about.tree,
                                               node=about.node))  # fmt: skip
            again = link(
                "whatif", run=self.run.name, step=about.step, tree=about.tree, node=about.node, token=about.kept or None
            )
            ui.link("another one from here", again)


def can_be_cancelled(job: WhatIfJob, now: str) -> bool:
    """Whether there is work left; a process goes on for a moment after it has saved its end."""
    return job.growing and now in ("starting", "growing")


def _why_not(job: WhatIfJob | None, lacking: str) -> str:
    """Why there is nothing to see; "" while it may still come."""
    if job is None:
        return lacking
    return "" if job.growing else job.trouble or "it was cancelled before anything was sampled"
