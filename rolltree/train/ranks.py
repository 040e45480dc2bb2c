"""Several processes that make a learner's steps together: shares of micro-batches, one gradient, one update.

The driver is rank 0. It grows the rollouts, packs them, gives every rank its share and keeps a whole copy of the
weights, which is what is published, evaluated and saved; nothing else of a run knows how many ranks there are.
"""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

from rolltree.objective.batch import step_wide
from rolltree.objective.hooks import accumulator_of
from rolltree.policy.unadapted import Unadapted
from rolltree.recipe.recipe import Parts
from rolltree.train import ranks_worker as rank
from rolltree.train.config import TrainError
from rolltree.train.gather import Gathered, Watcher
from rolltree.train.pack import Micro
from rolltree.train.step import Learner, Work

PATIENCE = 10.0
"""Seconds that a process which ends the run, or is ended by it, is given."""


@contextmanager
def crewed(learner: Learner, parts: Parts, ranks: int) -> Generator[None]:
    """Let so many ranks make the learner's steps in here; with one, it makes them itself."""
    if ranks == 1:
        yield
        return
    _check(learner, parts, ranks)
    crew = ProcessCrew(learner, ranks)
    learner.crew = crew
    try:
        yield
    finally:
        learner.crew = None
        crew.close()


class ProcessCrew:
    """The driver's hold on the ranks; rank 0 lives in this process."""

    def __init__(self, learner: Learner, size: int) -> None:
        self._learner, self._size = learner, size
        self._threads = max(1, torch.get_num_threads() // size)
        policy = learner.policy
        fixed = {name: None if isinstance(p, Unadapted) else p.model for name, p in learner.anchors.items()}
        copy: Any = deepcopy(policy.model)
        own = rank.Beginning(copy, policy.attention, fixed, learner.optim, policy.compute, str(policy.device))
        store = rank.meeting(0, size, host=True)
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        try:
            for number in range(1, size):
                mine, theirs = context.Pipe()
                process = context.Process(
                    target=rank.serve, args=(theirs, number, size, store.port, self._threads), daemon=True
                )
                process.start()
                theirs.close()
                self._pipes.append(mine)
                self._processes.append(process)
            self._send([_sent(own)] * len(self._pipes))
            for number in range(1, size):
                self._answer(number)
            self._own = rank.join(own, 0, size, store)
        except BaseException:
            self.close()
            raise

    def teach(self, work: Work, watchers: Sequence[Watcher]) -> Gathered:
        """See `Crew.teach`."""
        shares = shared_out(work, self._size)
        lesson, others = self._together(rank.teach, [(share,) for share in shares])
        told: Gathered = lesson.told
        reads = [lesson.read]
        for gathered, read in others:
            told.merge(gathered)
            reads.append(read)
        for share, read in zip(shares, reads, strict=True):
            for micro, (logp, entropy) in zip((m for part in share.parts for m in part), read, strict=True):
                for watcher in watchers:
                    watcher.add(micro, torch.from_numpy(logp), None if entropy is None else torch.from_numpy(entropy))
        with torch.no_grad():
            for name, whole in self._learner.policy.model.named_parameters():
                if whole.requires_grad:
                    whole.copy_(lesson.weights[name])
        self._learner.updates = self._own.updates
        return told

    def optimizer_state(self) -> dict[str, Any]:
        """See `Crew.optimizer_state`."""
        return self._together(rank.optimizer_state, [()] * self._size)[0]

    def load(self, state: Mapping[str, Any]) -> None:
        """See `Crew.load`."""
        weights = {name: value.cpu() for name, value in self._learner.policy.model.state_dict().items()}
        self._together(rank.load, [(weights, state)] * self._size)

    def reanchor(self, name: str) -> None:
        """See `Crew.reanchor`."""
        self._together(rank.reanchor, [(name,)] * self._size)

    def close(self) -> None:
        """End the other ranks."""
        for pipe in self._pipes:
            pipe.close()
        if dist.is_initialized():
            dist.destroy_process_group()
        for process in self._processes:
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()

    def _together(self, order: Callable[..., Any], inputs: Sequence[tuple[Any, ...]]) -> tuple[Any, list[Any]]:
        """Let every rank do the same with its own inputs; what this one returned, and what the others answered."""
        self._send([(order, *theirs) for theirs in inputs[1:]])
        threads = torch.get_num_threads()
        torch.set_num_threads(self._threads)
        try:
            mine = order(self._own, *inputs[0])
        except RuntimeError as error:
            self._blame(error)
            raise
        finally:
            torch.set_num_threads(threads)
        return mine, [self._answer(number) for number in range(1, self._size)]

    def _send(self, messages: Sequence[Any]) -> None:
        for number, (pipe, message) in enumerate(zip(self._pipes, messages, strict=True), 1):
            try:
                packed = pickle.dumps(message)
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                raise TrainError(
                    f"the model or the objective cannot be sent to another process ({error}); define its classes and "
                    "functions in a module, or train with ranks=1"
                ) from error
            try:
                pipe.send_bytes(packed)
            except OSError:
                raise self._failed_in_a_row(number) from None

    def _answer(self, number: int) -> Any:
        wait([self._pipes[number - 1], self._processes[number - 1].sentinel])
        kind, value = self._message(number)
        if kind == rank.FAILED:
            raise self._failed_in_a_row(number, value)
        return value

    def _message(self, number: int) -> tuple[str, Any]:
        """What a rank has sent; that it failed, without a word, where it is gone."""
        pipe = self._pipes[number - 1]
        try:
            return pickle.loads(pipe.recv_bytes()) if pipe.poll() else (rank.FAILED, "")
        except (EOFError, OSError):
            return rank.FAILED, ""

    def _blame(self, error: RuntimeError) -> None:
        """If another rank is gone, say so instead of what its end did to this one; one that was killed did it first."""
        gone = wait([p.sentinel for p in self._processes], PATIENCE)
        ended = [n for n, p in enumerate(self._processes, 1) if p.sentinel in gone]
        if ended:
            number = min(ended, key=lambda n: (self._processes[n - 1].exitcode or 0, n))
            kind, value = self._message(number)
            raise self._failed_in_a_row(number, value if kind == rank.FAILED else "") from error

    def _failed_in_a_row(self, number: int, why: str = "") -> TrainError:
        process = self._processes[number - 1]
        process.join(PATIENCE)
        said = why or f"exit code {process.exitcode}"
        return TrainError(
            f"trainer rank {number} of {self._size} ended ({said}); go on from the newest checkpoint with the same "
            "command and --resume"
        )


def _sent(own: rank.Beginning) -> rank.Beginning:
    """What goes to another process, from which no card of this one is seen."""
    if own.device == "cpu":
        return own
    models = {name: None if m is None else deepcopy(m).cpu() for name, m in own.anchors.items()}
    return replace(own, model=deepcopy(own.model).cpu(), anchors=models)


def shared_out(work: Work, size: int) -> list[Work]:
    """The micro-batches of every update over so many ranks, longest first to whoever has the fewest tokens."""
    shares: list[list[list[Micro]]] = [[] for _ in range(size)]
    for part in work.parts:
        loads = [(0, number) for number in range(size)]
        mine: list[list[Micro]] = [[] for _ in range(size)]
        for micro in sorted(part, key=lambda m: -len(m.packed)):
            tokens, number = heapq.heappop(loads)
            mine[number].append(micro)
            heapq.heappush(loads, (tokens + len(micro.packed), number))
        for number, own in enumerate(mine):
            shares[number].append(own)
    return [replace(work, parts=share) for share in shares]


def _check(learner: Learner, parts: Parts, ranks: int) -> None:
    """Refuse what only one rank can do."""
    alone = "train it with ranks=1"
    if any(peer.trained for peer in parts.peers.values()):
        raise TrainError(f"{parts.name} trains several policies, which cannot share ranks={ranks}; {alone}")
    if accumulator_of(parts.objective) is not None:
        raise TrainError(f"{parts.name} needs each path's own gradient, which ranks={ranks} do not keep; {alone}")
    device = learner.policy.device
    if device.type != "cpu":
        last, count = (device.index or 0) + ranks - 1, torch.accelerator.device_count()
        if last >= count:
            raise TrainError(
                f"ranks={ranks} from {device} on take a card each, up to {device.type}:{last}, and this machine has "
                f"{count}; give fewer ranks, or --device cpu"
            )
        if step_wide(parts.objective):
            raise TrainError(
                f"{parts.name} needs a statistic of the whole step, which ranks={ranks} share on processors "
                f"alone; {alone}"
            )
    if dist.is_initialized():
        raise TrainError(f"ranks={ranks} begins processes of its own, but this one belongs to a group already; {alone}")
