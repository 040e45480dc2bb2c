"""What every rank can be asked to do, and the process that does it beside the driver's."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from rolltree.policy.device import Compute
from rolltree.policy.language import Attention, LanguagePolicy
from rolltree.policy.unadapted import Unadapted
from rolltree.train.backward import DivergedError
from rolltree.train.config import Optim
from rolltree.train.gather import Gathered
from rolltree.train.memory import keep_freed
from rolltree.train.pack import Micro
from rolltree.train.ranks_shard import (
    Sharded,
    load_optimizer,
    load_weights,
    shard,
    trained_weights,
    whole_optimizer,
)
from rolltree.train.step import Learner, Work, make_optimizer
from rolltree.tree.table import Floats

READY, DONE, DIVERGED, FAILED = "ready", "done", "diverged", "failed"


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a rank begins with."""

    model: Any
    attention: Attention
    anchors: Mapping[str, Any]
    """Models of the fixed policies; None = the model itself without its adapters."""
    optim: Optim
    compute: Compute = field(default_factory=Compute)
    device: str = "cpu"
    """The driver's; the others take those behind it."""


Reading = tuple[Floats, Floats | None]
"""(T,) log-probs of a micro-batch, and its entropies where the step computes them."""


@dataclass(slots=True)
class LogprobRecorder:
    """Keeps what the policy said of each micro-batch, in order."""

    read: list[Reading] = field(default_factory=list[Reading])

    def add(self, micro: Micro, logp: Tensor, entropy: Tensor | None = None) -> None:
        """See `Watcher.add`."""
        self.read.append((logp.cpu().double().numpy(), None if entropy is None else entropy.cpu().double().numpy()))


@dataclass(frozen=True, slots=True)
class Lesson:
    """What one rank reports of a step."""

    told: Gathered
    read: Sequence[Reading]
    """Per micro-batch of its share, in order."""
    weights: Mapping[str, Tensor]
    """The trained parameters after the step, whole; the driver alone keeps them."""


def meeting(port: int, size: int, *, host: bool = False) -> Any:
    """Where ranks of this machine find each other; the host's port 0 is any free one, which the result knows."""
    module: Any = dist
    return module.TCPStore("127.0.0.1", port, size, is_master=host, wait_for_workers=False)


def join(beginning: Beginning, rank: int, size: int, store: Any) -> Learner:
    """Become one of so many ranks; returns this one's learner."""
    keep_freed()
    device, backend = torch.device(beginning.device), "gloo"
    if device.type != "cpu":
        # A card each, the driver's first; what is told beside tensors goes over the processors.
        device = torch.device(device.type, (device.index or 0) + rank)
        torch.accelerator.set_device_index(device.index)
        backend = f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    compute = beginning.compute
    policy = LanguagePolicy(beginning.model.to(device), attention=beginning.attention, compute=compute)
    shard(policy)
    anchors = {
        name: Unadapted(policy) if model is None else LanguagePolicy(model.to(device), compute=compute)
        for name, model in beginning.anchors.items()
    }
    return Learner(policy, make_optimizer(policy, beginning.optim), beginning.optim, anchors, team=Sharded())


def teach(learner: Learner, work: Work) -> Lesson:
    """Make a step on this rank's share."""
    seen = LogprobRecorder()
    told = learner.teach(work, [seen])
    return Lesson(told, seen.read, trained_weights(learner.policy))


def load(learner: Learner, weights: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
    """Go to these weights and this state, both whole."""
    load_weights(learner.policy, weights)
    load_optimizer(learner.optimizer, state["optimizer"])
    learner.updates = int(state["updates"])
    for name, anchor in learner.anchors.items():
        anchor.load_state_dict(state["anchors"][name])


def optimizer_state(learner: Learner) -> dict[str, Any]:
    """The optimizer's whole state."""
    return whole_optimizer(learner.optimizer)


def reanchor(learner: Learner, name: str) -> None:
    """Let a fixed policy be the current one."""
    learner.reanchor(name)


def serve(pipe: Connection, rank: int, size: int, port: int, threads: int) -> None:
    """A rank's process: does what it is asked until the driver is gone."""
    # Ctrl-C reaches the whole group of processes; the driver ends the run.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    try:
        beginning: Beginning = pickle.loads(pipe.recv_bytes())
        pipe.send_bytes(pickle.dumps((READY, None)))
        learner = join(beginning, rank, size, meeting(port, size))
        while True:
            order, *inputs = pickle.loads(pipe.recv_bytes())
            pipe.send_bytes(pickle.dumps(_answer(order, learner, inputs)))
    except EOFError:
        return
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        pipe.send_bytes(pickle.dumps((FAILED, f"{type(error).__name__}: {said}")))
        raise SystemExit(1) from None


def _answer(order: Callable[..., Any], learner: Learner, inputs: Sequence[Any]) -> tuple[str, Any]:
    try:
        out = order(learner, *inputs)
    except DivergedError:
        return DIVERGED, None
    # Weights and states are whole on every rank; the driver has its own.
    return DONE, (out.told, out.read) if isinstance(out, Lesson) else None
