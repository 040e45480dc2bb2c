"""Several policies in one run: each has an engine and, if it is trained, weights and an optimizer of its own (MARS²).

They write in the same trees and are credited together; an action then teaches the policy that wrote it and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rolltree.credit.fold import Expanded, Folded
from rolltree.engine.choose import local_engine
from rolltree.engine.protocol import Engine
from rolltree.policy.formats import integers
from rolltree.policy.load import LoadedModel, load_model
from rolltree.policy.precision import matrices, rounded_copy, rounded_state
from rolltree.policy.protocol import Policy
from rolltree.policy.publish import weights_of
from rolltree.recipe.recipe import Parts, Peer
from rolltree.training.config import TrainError
from rolltree.training.step import Learner
from rolltree.tree.table import Table


@dataclass(slots=True)
class PeerPolicy:
    """A peer at work."""

    engine: Engine
    learner: Learner | None
    """None = it is not trained."""
    bits: int = 0
    """What it follows the trained policy with; 0 = it stays as it is."""
    version: int = 0

    async def publish(self, version: int, trained: Policy) -> None:
        """Give its engine its present weights, unless they never change; `trained` is the run's own policy."""
        if self.learner is None and not self.bits:
            return
        weights = weights_of(trained if self.learner is None else self.learner.policy)
        self.version = max(version, self.engine.version + 1)
        if self.bits:
            weights = rounded_state(weights, matrices(weights), integers(self.bits))
        await self.engine.update_weights(weights, self.version)

    def state(self) -> dict[str, Any]:
        """Weights and optimizer; nothing for one that is not trained."""
        if self.learner is None:
            return {}
        return {"model": self.learner.policy.model.state_dict(), "learner": self.learner.state_dict()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to that state."""
        if self.learner is not None:
            self.learner.policy.model.load_state_dict(state["model"])
            self.learner.load_state_dict(state["learner"])


def check_peers(parts: Parts) -> None:
    """Refuse objectives whose ratios belong to a path, where its actions are of several policies."""
    writers = [name for name, peer in parts.peers.items() if peer.writes]
    if writers and parts.objective.level == "path" and parts.unit == "path":
        raise TrainError(
            f"{parts.name} lets {', '.join(writers)} write on the same paths as the trained policy, but its "
            "objective has one ratio per path; choose one with a ratio per token, such as clipped"
        )


def peer_model(peer: Peer, ours: LoadedModel) -> LoadedModel:
    """A peer's own model: the one it names, or a copy of ours."""
    if peer.model:
        return load_model(peer.model)
    return LoadedModel(deepcopy(ours.model), ours.codec, ours.path, f"{ours.name} (copy)")


def frozen_peers(peers: Mapping[str, Peer], policy: str | Path | LoadedModel | None) -> dict[str, Engine]:
    """Engines for rollouts without training: a plain copy writes as the run's own engine does, so it needs none.

    `policy` is the run's own model; None = only its engine is known.
    """
    engines: dict[str, Engine] = {}
    for name, peer in peers.items():
        if peer.model:
            engines[name] = local_engine(peer.model)
        elif peer.bits:
            if policy is None:
                raise TrainError(
                    f"{name} is the model itself with weights of {peer.bits} bits, and only an engine was given; give "
                    "the model in its place"
                )
            ours = policy if isinstance(policy, LoadedModel) else load_model(policy)
            engines[name] = local_engine(replace(ours, model=rounded_copy(ours.model, integers(peer.bits))))
    return engines


def written_by(table: Table, folded: Folded, names: Iterable[str], *, others: bool = False) -> Folded:
    """What those actors wrote (or all `others`) with its credit; the rest weighs nothing."""
    wanted = set(names)
    mine = np.fromiter(((n.actor in wanted) != others for n in table.nodes), np.bool_, len(table.nodes))
    use = table.per_action(mine).astype(np.float64)
    return Folded(folded.gain * use, folded.loss * use, folded.weight * use)


def paths_by(table: Table, paths: Expanded | None, names: Iterable[str], *, others: bool = False) -> Expanded | None:
    """The sequences that those actors wrote (or all `others`), each of which is of one of them."""
    if paths is None:
        return None
    wanted = set(names)
    row = np.repeat(np.arange(len(table.nodes)), table.length)
    begins = np.searchsorted(paths.path, np.arange(len(paths.weight)))
    mine = np.fromiter(
        ((table.nodes[row[i]].actor in wanted) != others for i in paths.index[begins]), np.bool_, len(paths.weight)
    )
    use, number = mine[paths.path], np.cumsum(mine) - 1
    return Expanded(
        paths.index[use],
        number[paths.path[use]],
        paths.advantage[use],
        paths.weight[mine],
        paths.leaf[mine],
        None if paths.share is None else paths.share[use],
    )
