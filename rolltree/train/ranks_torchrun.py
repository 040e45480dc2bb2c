"""Ranks that torchrun started, on one machine or several: all run the same command, and rank 0 drives."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from rolltree.policy.device import place
from rolltree.train.config import TrainConfig, TrainError
from rolltree.train.ranks_worker import FAILED, RankWire, backend_of, serve

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
