"""Briefs beside a prompt as the model that reads it is asked: inside of its chat template's messages, or in plain text.

Everything that writes a prompt with a brief goes through here, so that a prompt is rendered once, with all its texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rolltree.control.brief import Brief, Laid, Slot
from rolltree.task.spoken import Beside, Piece, Spoken
from rolltree.tree.node import Array, as_actions, join_actions


def spoken_brief(brief: Brief, prompt: str) -> str:
    """The prompt with all texts: in a chat they stand in the user's message, and what joins begins the model's turn."""
    if not isinstance(prompt, Spoken):
        return brief.around(prompt)
    return prompt.beside(_places(brief)) if brief.slots else prompt


def laid_out(brief: Brief, read: Callable[[str], Any], prompt: Sequence[int] | Array | Spoken) -> Laid:
    """The same in tokens; `read` encodes a text. Each slot's tokens are its own, so its neighbours never change."""
    if not isinstance(prompt, Spoken):
        return brief.laid(read, prompt)
    said = prompt.beside(_places(brief)) if brief.slots else prompt
    parts, spans, at, done = list[Array](), dict[str, tuple[int, int]](), 0, 0
    stands = {slot.name: said.places.get(slot.name, (len(said), len(said))) for slot in brief}
    for name, (start, stop) in sorted(stands.items(), key=lambda one: one[1]):
        between, own = (as_actions(read(said.part(a, b))) for a, b in ((done, start), (start, stop)))
        spans[name] = (at + len(between), at + len(between) + len(own))
        parts += [between, own]
        at, done = spans[name][1], stop
    rest = said.part(done, len(said)) if done else said
    ids = join_actions([*parts, as_actions(read(rest))])
    return replace(brief.without(*spans).laid(read, ids), spans=spans)


def _places(brief: Brief) -> Beside:
    def told(wanted: Callable[[Slot], bool]) -> tuple[Piece, ...]:
        return tuple(Piece(slot.text, slot.name) for slot in brief if wanted(slot))

    return Beside(told(lambda s: s.before), told(lambda s: not (s.before or s.joins)), told(lambda s: s.joins))
