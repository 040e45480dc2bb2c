"""Ranks as processes of this machine that the driver starts and ends."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
import torch.distributed as dist
from torch import multiprocessing

from rolltree.train.config import TrainError
from rolltree.train.ranks_worker import FAILED, RankWire, backend_of, serve

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
