"""What stands above a tree: the question, the expected answer, how many are right, and where one can go from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nicegui import ui

from rolltree.analysis.text import Pieces
from rolltree.task.protocol import EXPECTED
from rolltree.view.calls import is_agents
from rolltree.view.outline import Outline
from rolltree.view.pages.parts import Words, heading, says
from rolltree.view.rows import events_of, head

QUESTION = 600
"""Characters of a question at the top of its page; the path below has all of it."""


@dataclass(frozen=True)
class TreeHead:
    """A tree in the words of its task."""

    question: str
    expected: str
    about: tuple[str, ...]
    failed: str
    agents: bool
    """Whether its calls were an agent's."""


def tree_head(tree: Outline, pieces: Pieces, step: int | None) -> TreeHead:
    """What is known of a tree before one looks at its nodes."""
    known = head(tree.archive, tree.index)
    ids, at = tree.archive.ragged("actions")
    text = pieces.text(ids[at[tree.lo] : at[tree.lo + 1]]).strip()
    notes: dict[str, Any] = known["notes"]
    right, judged = tree.solved
    about = [
        "" if step is None else f"step {step}", known["task"], known["item"] if known["item"] != tree.id else "",
        f"{right} of {judged} right" if judged else "nothing was judged",
        f"{len(tree):,} nodes", f"{int(tree.leaf_count[0]):,} leaves",
    ]  # fmt: skip
    shown = text[:QUESTION] + ("…" if len(text) > QUESTION else "")
    agents = is_agents(str(known["task"]), events_of(tree.archive, tree.index))
    expected, failed = str(notes.get(EXPECTED, "")), str(notes.get("failed") or "")
    return TreeHead(shown, expected, tuple(a for a in about if a), failed, agents)


def draw_tree_head(told: TreeHead, tree: str) -> None:
    """Draw it."""
    heading(tree, 1)
    with ui.element("div").classes("question"):
        ui.label(told.question).classes("asked")
        if told.expected:
            with ui.element("div"):
                Words("expected answer: ").classes("soft")
                Words(told.expected).classes("expected")
    ui.label(" · ".join(told.about)).classes("soft tree-about")
    if told.failed:
        says(f"This tree failed: {told.failed}")
