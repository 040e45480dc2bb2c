"""Ranks as processes of this machine that the driver starts and ends."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

from rolltree.policy.device import place
from rolltree.training.config import TrainConfig, TrainError
from rolltree.training.ranks.worker import FAILED, RankWire, backend_of, serve

# Ranks that torchrun started, on one machine or several: all run the same command, and rank 0 drives.

WAIT = timedelta(days=30)
"""Ranks wait for the driver as long as rollouts take; torchrun ends all when one is gone."""


@dataclass(frozen=True, slots=True)
class TorchrunPlace:
    """Which of torchrun's processes this is."""

    rank: int
    size: int
    local: int
    """Its number on its machine, which is its card's."""


def launched(environment: Mapping[str, str] = os.environ) -> TorchrunPlace | None:
    """This process's place among those of torchrun; None where there are no others."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK")
    if not all(name in environment for name in names) or "TORCHELASTIC_RUN_ID" not in environment:
        return None
    rank, size, local = (int(environment[name]) for name in names)
    return TorchrunPlace(rank, size, local) if size > 1 else None


def leads() -> bool:
    """Whether this process is the one that drives, as it is where there are no others."""
    mine = launched()
    return mine is None or mine.rank == 0


def settled(config: TrainConfig) -> TrainConfig:
    """The configuration with as many ranks as torchrun started, which meet here."""
    mine = launched()
    if mine is None:
        return config
    if config.ranks not in (1, mine.size):
        raise TrainError(f"torchrun started {mine.size} ranks, but ranks={config.ranks} is asked for; leave out ranks")
    _meet(str(_device(config, mine)))
    return replace(config, ranks=mine.size)


def follow(config: TrainConfig) -> None:
    """Be a rank beside the driver's until it lets go."""
    mine = launched()
    assert mine is not None
    serve(_Wire(0), _device(config, mine))


class Launched:
    """The other ranks of torchrun, seen from rank 0."""

    threads = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self._wires = [_Wire(number) for number in range(1, size)]

    @property
    def wires(self) -> Sequence[RankWire]:
        """To the ranks from 1 on."""
        return self._wires

    def answer(self, number: int) -> Any:
        """What a rank has answered."""
        try:
            kind, value = pickle.loads(self._wires[number - 1].recv_bytes())
        except (EOFError, RuntimeError) as error:
            raise self.lost(number, str(error).splitlines()[0]) from error
        if kind == FAILED:
            raise self.lost(number, value)
        return value

    def blame(self, error: BaseException) -> None:
        """What the end of another rank did to this one reads as what it is; torchrun tells which one ended."""

    def lost(self, number: int, why: str = "") -> TrainError:
        """The error of a rank that is gone."""
        return TrainError(
            f"trainer rank {number} of {self.size} ended ({why}); go on from the newest checkpoint with the same "
            "command and --resume"
        )

    def close(self) -> None:
        """Let them go."""
        for wire in self._wires:
            try:
                wire.send_bytes(b"")
            except RuntimeError:
                continue


class _Wire:
    """Messages to another rank of the default group, over the processors."""

    def __init__(self, number: int) -> None:
        self._number = number

    def send_bytes(self, buf: bytes, /) -> None:
        """Send a message; an empty one is the last."""
        dist.send(torch.tensor([len(buf)]), self._number)
        if buf:
            dist.send(torch.frombuffer(bytearray(buf), dtype=torch.uint8), self._number)

    def recv_bytes(self) -> bytes:
        """Wait for the next."""
        length = torch.zeros(1, dtype=torch.int64)
        dist.recv(length, self._number)
        if not int(length):
            raise EOFError
        message = torch.empty(int(length), dtype=torch.uint8)
        dist.recv(message, self._number)
        return message.numpy().tobytes()


@cache
def _meet(device: str) -> None:
    if dist.is_initialized():
        raise TrainError(
            "under torchrun rolltree.train lets the ranks meet by itself, but this process belongs to a group already; "
            "leave out init_process_group"
        )
    dist.init_process_group(backend_of(torch.device(device)), timeout=WAIT)


def _device(config: TrainConfig, mine: TorchrunPlace) -> torch.device:
    if config.device != "cpu" and torch.accelerator.is_available():
        torch.accelerator.set_device_index(mine.local)
    return place(config.device, config.dtype).device


PATIENCE = 10.0
"""Seconds that a process which ends the run, or is ended by it, is given."""


class Processes:
    """The other ranks; rank 0 lives in this process."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.size = size
        self.threads = max(1, torch.get_num_threads() // size)
        """Those of each rank."""
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        store, context = meeting(0, size, host=True), multiprocessing.get_context("spawn")
        try:
            for number in range(1, size):
                mine, theirs = context.Pipe()
                # A card each, the driver's first.
                own = device if device.type == "cpu" else torch.device(device.type, (device.index or 0) + number)
                process = context.Process(
                    target=run, args=(theirs, number, size, store.port, self.threads, str(own)), daemon=True
                )
                process.start()
                theirs.close()
                self._pipes.append(mine)
                self._processes.append(process)
            dist.init_process_group(backend_of(device), store=store, rank=0, world_size=size)
        except BaseException:
            self.close()
            raise

    @property
    def wires(self) -> Sequence[RankWire]:
        """To the ranks from 1 on."""
        return self._pipes

    def answer(self, number: int) -> Any:
        """What a rank has answered."""
        wait([self._pipes[number - 1], self._processes[number - 1].sentinel])
        kind, value = self._message(number)
        if kind == FAILED:
            raise self.lost(number, value)
        return value

    def blame(self, error: BaseException) -> None:
        """If another rank is gone, say so instead of what its end did to this one; one that was killed did it first."""
        gone = wait([p.sentinel for p in self._processes], PATIENCE)
        ended = [n for n, p in enumerate(self._processes, 1) if p.sentinel in gone]
        if ended:
            number = min(ended, key=lambda n: (self._processes[n - 1].exitcode or 0, n))
            kind, value = self._message(number)
            raise self.lost(number, value if kind == FAILED else "") from error

    def lost(self, number: int, why: str = "") -> TrainError:
        """The error of a rank that is gone."""
        process = self._processes[number - 1]
        process.join(PATIENCE)
        said = why or f"exit code {process.exitcode}"
        return TrainError(
            f"trainer rank {number} of {self.size} ended ({said}); go on from the newest checkpoint with the same "
            "command and --resume"
        )

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

    def _message(self, number: int) -> tuple[str, Any]:
        """What a rank has sent; that it failed, without a word, where it is gone."""
        pipe = self._pipes[number - 1]
        try:
            return pickle.loads(pipe.recv_bytes()) if pipe.poll() else (FAILED, "")
        except (EOFError, OSError):
            return FAILED, ""


def meeting(port: int, size: int, *, host: bool = False) -> Any:
    """Where ranks of this machine find each other; the host's port 0 is any free one, which the result knows."""
    module: Any = dist
    return module.TCPStore("127.0.0.1", port, size, is_master=host, wait_for_workers=False)


def run(pipe: Connection, number: int, size: int, port: int, threads: int, device: str) -> None:
    """A rank's process."""
    # Ctrl-C reaches the whole group of processes; the driver ends the run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    own = torch.device(device)
    dist.init_process_group(backend_of(own), store=meeting(port, size), rank=number, world_size=size)
    serve(pipe, own)
