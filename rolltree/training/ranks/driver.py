"""Several processes that make a learner's steps together: shares of micro-batches, one gradient, one update.

The driver is rank 0. It grows the rollouts, packs them, gives every rank its share and keeps a whole copy of the
weights, which is what is published, evaluated and saved; nothing else of a run knows how many ranks there are.
"""

from __future__ import annotations

import heapq
import os
import pickle
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import torch
import torch.distributed as dist

from rolltree.objective.batch import step_wide
from rolltree.objective.hooks import accumulator_of
from rolltree.policy.language import LanguagePolicy
from rolltree.recipe.recipe import Parts
from rolltree.training.config import TrainError
from rolltree.training.pack import Micro
from rolltree.training.ranks import worker as rank
from rolltree.training.ranks.start import Launched, Processes, launched
from rolltree.training.step import Learner, Work
from rolltree.training.step_metrics import Gathered, Watcher

A_PROCESSOR = 4
"""Ranks for each processor, beyond which nothing is gained by any of them."""


@contextmanager
def crewed(learner: Learner, parts: Parts, ranks: int) -> Generator[None]:
    """Let so many ranks make the learner's steps in here; with one, it makes them itself."""
    if ranks == 1:
        yield
        return
    _check(learner, parts, ranks)
    crew = Crew(learner, Processes(ranks, learner.policy.device) if launched() is None else Launched(ranks))
    learner.crew, learner.anchors = crew, {}
    try:
        yield
    finally:
        learner.crew = None
        crew.close()


def check_count(ranks: int, device: torch.device) -> None:
    """Refuse ranks that this machine has no processors for: they would begin for minutes, and then wait in turn."""
    most = A_PROCESSOR * (os.cpu_count() or 1)
    if launched() is None and device.type == "cpu" and ranks > most:
        raise TrainError(
            f"ranks={ranks} are too many for the {os.cpu_count()} processors of this machine; give at most {most}, or "
            "start them on several machines with torchrun"
        )


class Others(Protocol):
    """The ranks beside the driver's, wherever they run."""

    size: int
    """With the driver's."""
    threads: int
    """Those that each rank computes with; 0 = as many as it has."""

    @property
    def wires(self) -> Sequence[rank.RankWire]:
        """To the ranks from 1 on."""
        ...

    def answer(self, number: int) -> Any:
        """What a rank has answered; a `TrainError` if it has failed."""
        ...

    def blame(self, error: BaseException) -> None:
        """Raise what did this to the driver's rank, if it was the end of another."""
        ...

    def lost(self, number: int, why: str = "") -> TrainError:
        """The error of a rank that is gone."""
        ...

    def close(self) -> None:
        """Let them go."""
        ...


class Crew:
    """The driver's hold on the ranks; rank 0 lives in this process."""

    def __init__(self, learner: Learner, others: Others) -> None:
        self._learner, self._others = learner, others
        try:
            beginning = rank.Beginning.of(learner)
            self._send([beginning] * (others.size - 1))
            whole = {"": learner.policy.state_dict(), **{n: p.state_dict() for n, p in learner.anchors.items()}}
            with self._blaming():
                self._own = rank.begin(beginning, learner.policy.device, whole)
        except BaseException:
            self.close()
            raise

    def run_updates(self, work: Work, watchers: Sequence[Watcher]) -> Gathered:
        """See `RankGroup.run_updates`."""
        shares = shared_out(work, self._others.size)
        report, others = self._together(rank.run_updates, [(share,) for share in shares], (self._learner.policy.model,))
        told: Gathered = report.told
        for other in others:
            told.merge(other.told)
        for share, mine in zip(shares, [report, *others], strict=True):
            for micro, (logp, entropy) in zip((m for part in share.parts for m in part), mine.read, strict=True):
                for watcher in watchers:
                    watcher.add(micro, torch.from_numpy(logp), None if entropy is None else torch.from_numpy(entropy))
        self._learner.updates, self._learner.averaged = self._own.updates, self._own.averaged
        return told

    def state(self) -> dict[str, Any]:
        """See `RankGroup.state`."""
        whole: dict[str, Any] = {}
        self._together(rank.gather_state, [()] * self._others.size, (whole,))
        return whole

    def load(self, state: Mapping[str, Any]) -> None:
        """See `RankGroup.load`."""
        whole = {"": self._learner.policy.state_dict(), **state["anchors"]}
        updates = int(state["updates"])
        mass = float(state.get("averaged", 1.0))
        self._together(rank.load, [(updates, mass)] * self._others.size, (whole, state["optimizer"]))

    def reanchor(self, name: str) -> None:
        """See `RankGroup.reanchor`."""
        self._together(rank.reanchor, [(name,)] * self._others.size)

    def close(self) -> None:
        """Let the other ranks go."""
        self._others.close()

    def _together(
        self, order: Callable[..., Any], inputs: Sequence[tuple[Any, ...]], more: tuple[Any, ...] = ()
    ) -> tuple[Any, list[Any]]:
        """Let every rank do the same with its own inputs, the driver with more: what it and they answered."""
        self._send([(order, *theirs) for theirs in inputs[1:]])
        with self._blaming():
            mine = order(self._own, *inputs[0], *more)
        return mine, [self._others.answer(number) for number in range(1, self._others.size)]

    @contextmanager
    def _blaming(self) -> Generator[None]:
        threads = torch.get_num_threads()
        torch.set_num_threads(self._others.threads or threads)
        try:
            yield
        except RuntimeError as error:
            self._others.blame(error)
            raise
        finally:
            torch.set_num_threads(threads)

    def _send(self, messages: Sequence[Any]) -> None:
        for number, (wire, message) in enumerate(zip(self._others.wires, messages, strict=True), 1):
            try:
                packed = pickle.dumps(message)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise TrainError(
                    f"the model or the objective cannot be sent to another process ({error}); define its classes and "
                    "functions in a module, or train with ranks=1"
                ) from error
            try:
                wire.send_bytes(packed)
            except OSError:
                raise self._others.lost(number) from None


def shared_out(work: Work, size: int) -> list[Work]:
    """The micro-batches of every update over so many ranks, longest first to whoever has the fewest tokens.

    All make as many passes as the rank with most micro-batches, because every pass takes all ranks.
    """
    shares: list[list[list[Micro]]] = [[] for _ in range(size)]
    passes: list[int] = []
    for part in work.parts:
        loads = [(0, number) for number in range(size)]
        mine: list[list[Micro]] = [[] for _ in range(size)]
        for micro in sorted(part, key=lambda m: -len(m.packed)):
            tokens, number = heapq.heappop(loads)
            mine[number].append(micro)
            heapq.heappush(loads, (tokens + len(micro.packed), number))
        passes.append(max(len(own) for own in mine))
        for number, own in enumerate(mine):
            shares[number].append(own)
    return [replace(work, parts=share, passes=passes) for share in shares]


def _check(learner: Learner, parts: Parts, ranks: int) -> None:
    """Refuse what only one rank can do."""
    alone = "train it with ranks=1"
    if any(peer.trained for peer in parts.peers.values()):
        raise TrainError(f"{parts.name} trains several policies, which cannot share ranks={ranks}; {alone}")
    if accumulator_of(parts.objective) is not None:
        raise TrainError(f"{parts.name} needs each path's own gradient, which ranks={ranks} do not keep; {alone}")
    if not isinstance(learner.policy, LanguagePolicy):
        kind = type(learner.policy.model).__name__
        raise TrainError(f"ranks={ranks} share the blocks of a language model, and {kind} is none; {alone}")
    device = learner.policy.device
    if device.type != "cpu" and step_wide(parts.objective):
        raise TrainError(
            f"{parts.name} needs a statistic of the whole step, which ranks={ranks} share on processors alone; {alone}"
        )
    if launched() is not None:
        return
    if device.type != "cpu":
        last, count = (device.index or 0) + ranks - 1, torch.accelerator.device_count()
        if last >= count:
            raise TrainError(
                f"ranks={ranks} from {device} on take a card each, up to {device.type}:{last}, and this machine has "
                f"{count}; give fewer ranks, or --device cpu"
            )
    if dist.is_initialized():
        raise TrainError(f"ranks={ranks} begins processes of its own, but this one belongs to a group already; {alone}")
