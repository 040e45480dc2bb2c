"""The pages, drawn with NiceGUI. Only this package imports it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rolltree.view.source import RunSource


def register(find: Callable[[], Sequence[RunSource]]) -> None:
    """Make every page known to the app; `find` gives the sources as they are now."""
    from rolltree.view.pages import decisive, findings, lens, modes, pair, prompts, runs, search, steps, tree
    from rolltree.view.pages.frame import Site, install

    site = Site(find)
    install()
    for module in (runs, steps, prompts, tree, pair, findings, search, decisive, lens, modes):
        module.add(site)
