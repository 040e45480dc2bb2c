"""What every rank can be asked to do, and how a rank beside the driver's does it."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor

from rolltree.policy.language import LanguagePolicy
from rolltree.policy.lora import Unadapted
from rolltree.training.backward import DivergedError
from rolltree.training.config import Optim
from rolltree.training.memory import keep_freed
from rolltree.training.optimizer import make_optimizer
from rolltree.training.pack import Micro
from rolltree.training.ranks.shard import (
    ModelOutline,
    RankPolicy,
    Sharded,
    gather_trained,
    load_optimizer,
    load_weights,
    whole_optimizer,
    whole_state,
)
from rolltree.training.step import Learner, Work
from rolltree.training.step_metrics import Gathered
from rolltree.tree.table import Floats

DONE, DIVERGED, FAILED = "done", "diverged", "failed"

Whole = Mapping[str, Mapping[str, Tensor]]
"""Whole weights by policy: "" is the trained one, others by their name. Rank 0 alone has them."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a rank begins with."""

    policy: ModelOutline
    anchors: Mapping[str, ModelOutline | None]
    """The fixed policies; None = the trained one without its adapters."""
    optim: Optim

    @classmethod
    def of(cls, learner: Learner) -> Beginning:
        """That of a learner which is whole."""
        fixed = {n: cast(LanguagePolicy, p) for n, p in learner.anchors.items()}
        anchors = {n: None if isinstance(p, Unadapted) else ModelOutline.of(p) for n, p in fixed.items()}
        return cls(ModelOutline.of(cast(LanguagePolicy, learner.policy)), anchors, learner.optim)


class RankWire(Protocol):
    """Messages between the driver and one other rank; a `multiprocessing` connection is one."""

    def send_bytes(self, buf: bytes, /) -> None:
        """Send a message."""
        ...

    def recv_bytes(self) -> bytes:
        """Wait for the next; EOFError = the other side has ended."""
        ...


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
class RankReport:
    """What one rank reports of a step."""

    told: Gathered
    read: Sequence[Reading]
    """Per micro-batch of its share, in order."""


def backend_of(device: torch.device) -> str:
    """What tensors go over; what is told beside tensors goes over the processors."""
    if device.type == "cpu":
        return "gloo"
    torch.accelerator.set_device_index(device.index)
    return f"cpu:gloo,{device.type}:{dist.get_default_backend_for_device(device)}"


def begin(beginning: Beginning, device: torch.device, whole: Whole | None = None) -> Learner:
    """This rank's learner, once it belongs to the group; all ranks begin together."""
    keep_freed()
    policy = RankPolicy(beginning.policy, device, None if whole is None else whole[""])
    anchors = {
        name: Unadapted(policy) if form is None else RankPolicy(form, device, None if whole is None else whole[name])
        for name, form in beginning.anchors.items()
    }
    return Learner(policy, make_optimizer(policy, beginning.optim), beginning.optim, anchors, team=Sharded())


def run_updates(learner: Learner, work: Work, into: Any | None = None) -> RankReport:
    """Make a step on this rank's share and write the trained weights into a whole model, which rank 0 has."""
    seen = LogprobRecorder()
    told = learner.run_updates(work, [seen])
    gather_trained(learner.policy.model, into)
    return RankReport(told, seen.read)


def load(
    learner: Learner, updates: int, mass: float, whole: Whole | None = None,
    optimizer: Mapping[str, Any] | None = None,
) -> None:  # fmt: skip
    """Go to these weights and this state, which rank 0 has; `mass` is that of averaged weights."""
    learner.updates, learner.averaged = updates, mass
    load_weights(learner.policy.model, None if whole is None else whole[""])
    load_optimizer(learner.optimizer, optimizer)
    for name, anchor in learner.anchors.items():
        if not isinstance(anchor, Unadapted):
            load_weights(anchor.model, None if whole is None else whole[name])


def gather_state(learner: Learner, into: dict[str, Any] | None = None) -> None:
    """Write the whole states of the optimizer and of the fixed policies, for the rank that keeps them."""
    keep = into is not None
    fixed = {
        name: {} if isinstance(anchor, Unadapted) else whole_state(anchor.model, keep=keep)
        for name, anchor in learner.anchors.items()
    }
    whole = {"optimizer": whole_optimizer(learner.optimizer, keep=keep), "anchors": fixed}
    if into is not None:
        into.update(whole, **({"averaged": learner.averaged} if "ewma" in learner.anchors else {}))


def reanchor(learner: Learner, name: str) -> None:
    """Let a fixed policy be the current one."""
    learner.reanchor(name)


def serve(wire: RankWire, device: torch.device) -> None:
    """Do what the driver asks until it is gone."""
    try:
        learner = begin(pickle.loads(wire.recv_bytes()), device)
        while True:
            order, *inputs = pickle.loads(wire.recv_bytes())
            wire.send_bytes(pickle.dumps(_answer(order, learner, inputs)))
    except EOFError:
        return
    except Exception as error:
        said = (str(error).strip().splitlines() or [""])[0]
        wire.send_bytes(pickle.dumps((FAILED, f"{type(error).__name__}: {said}")))
        raise SystemExit(1) from None


def _answer(order: Callable[..., Any], learner: Learner, inputs: Sequence[Any]) -> tuple[str, Any]:
    try:
        out = order(learner, *inputs)
    except DivergedError:
        return DIVERGED, None
    return DONE, out
