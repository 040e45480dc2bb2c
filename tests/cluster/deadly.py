"""A task for other processes; a module of its own, so that they import little."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from typing import Any

from rolltree.task.protocol import Item, Verdict
from rolltree.testing.tiny import SpellTask


@dataclass(frozen=True)
class Deadly(SpellTask):
    """A verifier that takes its process with it where the answer begins with this letter."""

    kills: str = ""

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        if text[:1] == self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return await SpellTask.verify(self, item, state, text)
