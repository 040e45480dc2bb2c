"""What `sol_rl` promises beside what all of its kind do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rolltree.errors import ModelError
from rolltree.generate.branches import BranchError
from rolltree.generate.runner import grow as grow_trees
from rolltree.latents.engine import LatentEngine
from rolltree.latents.task import Digits
from rolltree.policy.formats import integers
from rolltree.policy.load import load_model
from rolltree.policy.precision import matrices, rounded_copy, rounded_state
from rolltree.policy.protocol import Policy
from rolltree.recipe.recipe import Peer, RecipeError
from rolltree.training.config import TrainConfig, TrainError
from rolltree.training.grow import grow
from rolltree.training.peers import PeerPolicy
from rolltree.training.start import train
from rolltree_papers.sol_rl import PROXY, ProxyRanking, SolRl
from tests.latents.tiny import items, tiny_engine, tiny_loaded, tiny_net


def test_a_coarse_sampler_ranks_seeds_and_is_forgotten() -> None:
    async def run() -> Any:
        net = load_model("digits").model
        engine, proxy = LatentEngine(net), LatentEngine(rounded_copy(net, integers(6)))
        strategy = ProxyRanking(explore=16, keep=6)
        forest = await grow_trees(strategy, engine, Digits("symmetric"), items(2), peers={PROXY: proxy})
        await engine.close()
        await proxy.close()
        return forest

    for tree in asyncio.run(run()):
        live = [leaf for leaf in tree.leaves() if leaf.status == "done"]
        assert len(live) == 6
        # The seed itself is a draw from the prior: nothing is learned from it.
        assert not any(tree.path(leaf)[1].keep.any() for leaf in live)  # pyright: ignore[reportOptionalMemberAccess]
        assert all("reward" in leaf.scores and "proxy" in leaf.scores for leaf in live)
        explored = [leaf for leaf in tree.leaves() if leaf.status == "pruned" and "reward" in leaf.scores]
        assert len(explored) == 16
        by_proxy = sorted(leaf.scores["reward"] for leaf in explored)
        assert sorted(leaf.scores["proxy"] for leaf in live) == pytest.approx([*by_proxy[:3], *by_proxy[-3:]])
        first = {tree.prefix(leaf)[1].tobytes() for leaf in explored}
        assert {tree.prefix(leaf)[1].tobytes() for leaf in live} <= first


def test_the_coarse_copy_follows_the_trained_model_and_is_never_trained(tmp_path: Path) -> None:
    seen: list[tuple[int, dict[str, Tensor]]] = []

    class Watched(PeerPolicy):
        async def publish(self, version: int, trained: Policy) -> None:
            await super().publish(version, trained)
            engine: Any = self.engine
            weights = trained.weights()
            wanted = rounded_state(weights, matrices(weights), integers(4))
            held = engine.model.state_dict()
            assert all(torch.equal(held[name], wanted[name]) for name in wanted)
            seen.append((version, {name: value.clone() for name, value in held.items()}))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rolltree.training.start.PeerPolicy", Watched)
        config = TrainConfig(steps=2, prompts=2, eval_every=0, forests_every=0)
        result = train(SolRl(explore=6, keep=4), tiny_loaded(), "digits", out=tmp_path / "a", quiet=True, config=config)
    told = result.last("train")
    assert told["rollout/pruned/explored by the proxy"] == 2 * 6 * 2  # the seed and its path
    assert told["budget/trained"] == 2 * 4 * 5  # of six steps the last has no noise, and the seed is not trained
    assert told["policy/mismatch_max"] < 1e-3
    assert [version for version, _ in seen] == [0, 1, 2]
    assert not all(torch.equal(value, seen[-1][1][name]) for name, value in seen[0][1].items())


def test_a_coarse_copy_needs_the_model_and_has_none_of_its_own() -> None:
    with pytest.raises(RecipeError, match="no model of its own"):
        Peer("nano", trained=False, bits=4)
    with pytest.raises(TrainError, match="give the model in its place"):
        grow(SolRl(), tiny_engine(), Digits())


def test_bits_and_seeds_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ModelError, match="bits=1"):
        rounded_copy(tiny_net(), integers(1))
    with pytest.raises(BranchError, match="keep=9"):
        ProxyRanking(explore=8, keep=9)
