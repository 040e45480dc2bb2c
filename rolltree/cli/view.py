"""`rolltree view`: look at runs, trees and tokens in the browser, in the terminal or as one file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rolltree.analysis.source import RunSource, open_sources
from rolltree.cli.common import console, kept, leading_names, parse
from rolltree.errors import RolltreeError
from rolltree.tree.store.atomic import check_writable
from rolltree.view.server import ViewConfig, serve

ABOUT = """Look at runs, trees and tokens in the browser; pages follow a run that is still training.

  rolltree view runs/first
  rolltree view runs/grpo runs/treepo            side by side
  rolltree view nodes.jsonl --model nano         nodes of another program
  rolltree view runs/first --host 0.0.0.0        for others, with a token
  rolltree view runs/first --tui                 in the terminal, over SSH
  rolltree view runs/first --html tree.html      one tree as one file
"""


@dataclass(frozen=True)
class ViewArguments(ViewConfig):
    """What to look at, and where."""

    tui: bool = False
    """Show the trees in this terminal instead."""
    html: Path | None = None
    """Write one tree as a self-contained HTML file instead."""
    step: int | None = None
    """The saved step of --html; the newest when left out."""
    tree: str = ""
    """The tree of --html; the one whose rollouts differ most in outcome when left out."""
    overwrite: bool = False
    """Let --html replace an existing file."""


def run(arguments: Sequence[str]) -> int:
    """Parse; write a file, show a terminal or serve until interrupted."""
    names, rest = leading_names(arguments)
    given = ["--runs", *names] if names else []
    asked = parse(ViewArguments, [*given, *rest], "view", ABOUT)
    if asked.tui and asked.html is not None:
        raise RolltreeError("--tui shows trees in this terminal and --html writes a file; give one of them")
    if asked.html is None and (asked.step is not None or asked.tree or asked.overwrite):
        raise RolltreeError("--step, --tree and --overwrite say what --html FILE writes; add it, or leave them out")
    if asked.html is None and not asked.tui:
        return serve(asked)
    sources = open_sources(asked.runs, asked.model, asked.given)
    return _terminal(sources) if asked.html is None else _file(sources, asked, asked.html)


def _file(sources: list[RunSource], asked: ViewArguments, out: Path) -> int:
    from rolltree.view.onefile import chosen_tree, write_html

    if len(sources) > 1:
        raise RolltreeError(f"--html writes one tree of one run, and {len(sources)} were named; name one")
    source = sources[0]
    kept(source.path, out)
    check_writable(out, "--html")
    step, tree = chosen_tree(source, asked.step, asked.tree)
    written = write_html(source, step, tree, out, overwrite=asked.overwrite)
    at = "" if step is None else f" of step {step}"
    console().print(f"tree {tree}{at}: {written.stat().st_size / 1024:,.0f} KB in {written}", markup=False)
    return 0


def _terminal(sources: list[RunSource]) -> int:
    try:
        from rolltree.view.tui import TreeApp
    except ImportError:
        raise RolltreeError("trees in the terminal need Textual: pip install 'rolltree[tui]'") from None
    TreeApp(sources).run()
    return 0
