"""The pages, drawn with NiceGUI. Only this package imports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rolltree.analysis.source import RunSource


def register(find: Callable[[], Sequence[RunSource]], *, local: bool) -> None:
    """Make every page known to the app; `find` gives the sources as they are now. Only a `local` viewer may sample."""
    from rolltree.view.pages import (
        calls,
        decisive,
        findings,
        images,
        lens,
        modes,
        pair,
        prompts,
        runs,
        search,
        steps,
        tree,
        whatif,
    )
    from rolltree.view.pages.frame import Site, install
    from rolltree.view.whatif_jobs import WhatIfJobs

    site = Site(find, WhatIfJobs() if local else None)
    install()
    for module in (runs, steps, prompts, tree, pair, findings, search, decisive, lens, modes, whatif, images, calls):
        module.add(site)
