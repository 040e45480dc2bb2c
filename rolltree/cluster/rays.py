"""Processes as Ray actors: the only module that talks to Ray."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from rolltree.cluster.errors import ClusterError, LostError
from rolltree.cluster.wire import Order

INSTALL = "pip install 'rolltree[cluster]'"
REACHING = 10.0
"""Seconds in which a head node must take a connection."""
_STORE = 256 << 20
"""Bytes of shared memory of a cluster started here; weights pass through it, and Ray spills what does not fit."""


def need_ray() -> Any:
    """The ray module, or one sentence that says how to get it."""
    try:
        return import_module("ray")
    except ImportError as error:
        raise ClusterError(f"--cluster needs Ray, which is not installed; {INSTALL}") from error


@dataclass(frozen=True, slots=True)
class Where:
    """A cluster, as `--cluster` names it: one on this machine with so many engines, or one that runs somewhere."""

    address: str = ""
    """Empty = here."""
    engines: int | None = None


def parse_where(text: str) -> Where:
    """`local`, `local:N`, or what Ray takes as an address: `auto`, `HOST:PORT`, `ray://HOST:PORT`."""
    head, _, tail = text.partition(":")
    if head != "local":
        if text != "auto" and ":" not in text:
            raise ClusterError(
                f"--cluster {text!r} is no cluster; give local:N, auto, or the HOST:PORT of its head node"
            )
        return Where(text)
    if tail and not (tail.isdigit() and int(tail) > 0):
        raise ClusterError(f"--cluster {text!r} names no number of engines; give local:N with N of at least 1")
    return Where(engines=int(tail) if tail else 2)


@contextmanager
def joined(where: Where) -> Generator[Any]:
    """Ray, connected for the time being; a cluster started here ends with it. One already joined is left as it is."""
    ray = need_ray()
    if ray.is_initialized():
        yield ray
        return
    _reach(where.address)
    try:
        if where.address:
            ray.init(address=where.address, log_to_driver=False, logging_level="warning")
        else:
            ray.init(
                address="local", num_cpus=1, object_store_memory=_STORE, include_dashboard=False, log_to_driver=False,
                logging_level="warning",
            )  # fmt: skip
    except (ConnectionError, ValueError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        raise ClusterError(f"the cluster at {where.address or 'this machine'} cannot be joined: {first}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _reach(address: str) -> None:
    """Refuse an address where nobody listens: Ray would try it for a minute."""
    place = address.removeprefix("ray://")
    host, _, port = place.rpartition(":")
    if not host:
        return
    if not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ClusterError(f"--cluster {address!r} names no port; give the HOST:PORT of its head node")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACHING).close()
    except OSError as error:
        why = "it does not answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
        raise ClusterError(
            f"the cluster at {address} cannot be joined: {why}; give the HOST:PORT of a head node that runs"
        ) from error


class RayTransport:
    """Spawns actors that each take `num_cpus` processors and `num_gpus` GPUs, spread over the nodes."""

    def __init__(self, *, num_cpus: float = 1, num_gpus: float = 0) -> None:
        self._ray = need_ray()
        self._options = {
            "num_cpus": num_cpus, "num_gpus": num_gpus, "max_restarts": 0, "max_concurrency": 10_000,
            "scheduling_strategy": "SPREAD",
        }  # fmt: skip

    def spawn(self, kind: Callable[..., Any], *args: Any) -> RayRemote:
        """An actor of a class whose methods are coroutines."""
        actor = self._ray.remote(kind).options(**self._options).remote(*args)
        return RayRemote(self._ray, actor, kind.__name__)

    def share(self, value: Any) -> Any:
        """A reference into the object store."""
        try:
            return self._ray.put(value)
        except (TypeError, pickle.PicklingError, AttributeError) as error:
            raise ClusterError(f"{type(value).__name__} cannot be sent to other processes: {error}") from error


class RayRemote:
    """One actor. It is never restarted by Ray, which could not give it its weights and work back."""

    def __init__(self, ray: Any, actor: Any, name: str) -> None:
        self._ray, self._actor, self._name = ray, actor, name

    async def call(self, method: str, *args: Any) -> Any:
        """Await a method; what it raises is raised here as it was there."""
        return await self._answer(self._ask(method, getattr(self._actor, method), args))

    async def parted(self, method: str, *args: Any) -> tuple[Any, Any]:
        """Await the first part of a pair; the second is a reference that other actors are given."""
        first, second = self._ask(method, getattr(self._actor, method).options(num_returns=2), args)
        return await self._answer(first), second

    def _ask(self, name: str, method: Any, args: tuple[Any, ...]) -> Any:
        try:
            return method.remote(*args)
        except (TypeError, pickle.PicklingError) as error:
            raise ClusterError(f"{name} cannot be asked of another process: {_first(error)}") from error

    async def _answer(self, promise: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return await promise
        except errors.RayTaskError as error:
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, Exception) else RuntimeError(_first(error))) from None
        except errors.RayError as error:
            raise LostError(f"{self._name}: {_first(error)}") from error

    def pack(self, order: Order) -> bytes:
        """An order as bytes; hooks made inside functions travel too."""
        try:
            return self._ray.cloudpickle.dumps(order)
        except (TypeError, pickle.PicklingError, AttributeError) as error:
            raise ClusterError(
                f"a request cannot be sent to an engine's process ({_first(error)}); its hook must hold only values "
                "that can be pickled"
            ) from error

    def kill(self) -> None:
        """End the process."""
        if self._ray.is_initialized():
            self._ray.kill(self._actor, no_restart=True)


def _first(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
