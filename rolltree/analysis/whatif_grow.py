"""Growing a what-if of a saved tree, and saving it beside the run while it grows."""

from __future__ import annotations

import asyncio
import signal
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

from rolltree.analysis.source import RunSource
from rolltree.analysis.whatif import WhatIf, begin, grow_on, kept_tokens
from rolltree.analysis.whatif_given import (
    credit_of,
    item_of,
    limit_of,
    task_of_run,
    temperature_of,
    tokens_by,
    weights_of,
)  # fmt: skip
from rolltree.analysis.whatif_saved import SavedQuestion, SavedWhatIf, State, start_saving
from rolltree.engine.protocol import Sampling
from rolltree.errors import RolltreeError
from rolltree.task.protocol import spoken_by

OFTEN = 0.4
"""Seconds between two looks that a growing tree offers; more where saving takes long."""


@dataclass(frozen=True)
class WhatIfQuestion:
    """One question."""

    step: int | None
    tree: str
    node: int
    token: int | None = None
    n: int = 8
    seed: int = 0
    policy: str = ""
    engine: str = "local"
    device: str = "auto"
    dtype: str = "auto"
    temperature: float | None = None
    level: int | None = None
    items_seed: int = 0
    credit: str = ""
    name: str = ""


async def grow_whatif(source: RunSource, asked: WhatIfQuestion) -> SavedWhatIf:
    """Sample, save beside the run while it grows, and say how it ended. Refusals come before anything is saved."""
    from rolltree.engine.choose import choose_engine  # loads torch
    from rolltree.policy.device import place

    credit_of(source, asked.credit)
    tree = source.archive(asked.step).tree(asked.tree)
    kept = kept_tokens(tree, asked.node, asked.token)
    weights = weights_of(source, asked.step, tree, asked.node, kept, asked.policy)
    task = task_of_run(source, asked.level)
    heat = temperature_of(source) if asked.temperature is None else asked.temperature
    draw = Sampling(temperature=heat)
    with source.names.reading() if weights.stored else nullcontext():
        engine = await choose_engine(
            asked.engine, weights.model, version=weights.version or 0, sampling=draw,
            placement=place(asked.device, asked.dtype),
        )  # fmt: skip
    try:
        task = spoken_by(task, engine.codec)
        item = item_of(source, task, tree, asked.items_seed)
        whatif = await begin(
            tree, asked.node, asked.token, engine=engine, task=task, item=item, seed=asked.seed, sampling=draw,
            max_tokens=limit_of(source),
        )  # fmt: skip
        about = SavedQuestion(
            asked.step, asked.tree, asked.node, kept, asked.n, asked.seed, asked.engine, heat, weights.sentence,
            asked.credit, tokens_by(source, weights), whatif.start.id, max(whatif.known),
        )  # fmt: skip
        return await _grown(_Keeper(whatif, start_saving(source, about, tree, asked.name)), asked.n)
    finally:
        await engine.close()


async def _grown(keeper: _Keeper, n: int) -> SavedWhatIf:
    working = asyncio.current_task()
    assert working is not None
    with suppress(NotImplementedError):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
    try:
        await grow_on(replace(keeper.whatif, heard=keeper.look), n)
    except asyncio.CancelledError:
        keeper.end("cancelled", "")
        raise
    except RolltreeError as error:
        keeper.end("failed", str(error))
        raise
    except BaseException as error:
        keeper.end("failed", f"{type(error).__name__}: {error}")
        raise
    return keeper.end("done", "")


@dataclass
class _Keeper:
    """Saves the growing tree now and then."""

    whatif: WhatIf
    saved: SavedWhatIf
    _next: float = 0.0

    def look(self) -> None:
        """Save it unless that was done a moment ago."""
        if time.monotonic() < self._next:
            return
        began = time.monotonic()
        self.saved.keep(self.whatif.tree)
        took = time.monotonic() - began
        self._next = began + took + max(OFTEN, 4 * took)

    def end(self, state: State, why: str) -> SavedWhatIf:
        """Save it as it ended."""
        self.saved.keep(self.whatif.tree)
        self.saved = self.saved.tell(state=state, why=why, decoded=self.whatif.hand.budget.spent.decoded)
        return self.saved
