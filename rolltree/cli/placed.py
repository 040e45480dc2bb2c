"""`--cluster`: the engine and the task of a run as processes of a Ray cluster."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rolltree.engine.protocol import EngineError
from rolltree.task.protocol import Task, spoken_by
from rolltree.task.registry import load_task, policy_of_task

if TYPE_CHECKING:
    from rolltree.cluster.pool import PoolEngine
    from rolltree.engine.local import LocalEngine


A = TypeVar("A", bound=Any)


@dataclass(frozen=True)
class ClusterArguments:
    """Where engines and verifiers run."""

    cluster: str = ""
    """Run engines, environments and verifiers on Ray: local:N starts N engines on this machine (local:2 when nothing
    follows), auto or HOST:PORT joins a cluster."""
    cluster_engines: str = ""
    """Engines of the pool: a number, or LOW:HIGH to grow and shrink with the load; N of local:N, else one for each
    node, when left out."""
    cluster_workers: int | None = None
    """Processes for environments and verifiers; as many as engines when left out."""


def complete(arguments: Sequence[str]) -> list[str]:
    """`--cluster` with nothing behind it means two engines on this machine."""
    following = pairwise([*arguments, "--"])
    return ["--cluster=local:2" if word == "--cluster" and after.startswith("-") else word for word, after in following]


def with_policy(asked: A) -> A:
    """The arguments with the task's own model where none is named."""
    return asked if asked.policy else replace(asked, policy=policy_of_task(asked.task))


def asked_task(name: str, level: int | None, policy: str) -> Task:
    """The task as this policy is asked: data, before it goes to other processes, in the policy's chat template."""
    task = load_task(name, level=level)
    if not hasattr(task, "spoken_by"):
        return task
    from rolltree.policy.load import load_codec  # loads torch, which --help does not need
    from rolltree.policy.models import model_folder

    return spoken_by(task, load_codec(model_folder(policy)))


def in_template(policy: str, file: Path | None) -> None:
    """Let the policy speak in the template of `--chat-template`, where one is given."""
    if file is not None:
        from rolltree.policy.chat_template import give_template  # loads torch, which --help does not need

        give_template(policy, file)


@contextmanager
def placed(
    asked: ClusterArguments, policy: str, task: Task, *, engine: str = "local", version: int = 0
) -> Generator[tuple[PoolEngine, Task]]:
    """A pool of embedded engines on a model, and the task, on the cluster that was asked for; both end with it."""
    if engine != "local":
        raise EngineError(f"the engines of a cluster are local ones: leave out --engine {engine}, or --cluster")

    # They load torch, and --help needs none of it.
    from rolltree.cluster.elastic import parse_engines
    from rolltree.cluster.launch import Sizes, launched
    from rolltree.engine.local import LocalEngine
    from rolltree.policy.load import check_writes_tokens

    check_writes_tokens(policy, "pools of engines are", "leave out --cluster")

    def make(threads: int | None) -> partial[LocalEngine]:
        return partial(LocalEngine, policy, threads=threads, version=version)

    sizes = Sizes(parse_engines(asked.cluster_engines), asked.cluster_workers)
    with launched(asked.cluster, make, task, sizes) as (pool, remote):
        yield pool, remote
