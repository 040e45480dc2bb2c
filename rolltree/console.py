"""Where people read: a console on which texts of others are shown and do nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from rolltree.visible import visible


class Terminal(Console):
    """A console that reads no markup in texts and sends none of their control characters: styles are given apart."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich renders it, with every text made visible; what rich itself sends to the terminal stays."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))
