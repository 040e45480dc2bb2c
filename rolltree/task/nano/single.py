"""What tasks without an environment share: no first state, and no step."""

from __future__ import annotations

from typing import Any

from rolltree.task.protocol import Item, Reply


class SingleTurn:
    """A task that is asked once and answered once."""

    def start(self, item: Item) -> tuple[Any, str | None]:
        """No environment: no state and no key."""
        return None, None

    async def step(self, item: Item, state: Any, text: str) -> Reply:
        """Never part of a rollout here."""
        raise RuntimeError(f"{item.id} has no environment to step: its task has max_turns = 0")
