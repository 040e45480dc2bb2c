"""Sol-RL: many seeds are explored by a coarse copy, the best and worst are drawn again and trained (2604.06916)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.generate.branches import BranchError
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.turns import play
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Parts, Peer, check_group
from rolltree.tree import Node, Tree

# Explore cheaply, grow what matters: seeds are ranked by a coarse sampler, the extremes are drawn again (Sol-RL).

PROXY = "proxy"
"""The actor that explores: a peer with the same weights in a coarser type."""


@dataclass(frozen=True, slots=True)
class ProxyRanking:
    """`explore` seeds are denoised by the peer "proxy" without noise; the best and the worst `keep`/2 are regenerated.

    A seed is the first latent: it is forced into a path of the policy's own, which goes on with `noise`. Outcomes of
    the proxy choose and are then forgotten; its leaves are pruned, so advantages are over the regenerated ones alone
    (Sol-RL, arXiv 2604.06916). The paper regenerates without noise, for an objective that needs no densities; the
    more fresh noise, the less the ranking says (`proxy_noise` is the control).
    """

    gives_written: ClassVar[bool] = False
    explore: int = 24
    keep: int = 8
    noise: float = 0.0
    proxy_noise: float = 0.0
    needs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not 2 <= self.keep <= self.explore:
            raise BranchError(f"keep={self.keep} of explore={self.explore} seeds: keep at least 2 and at most all")

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Explore, rank, regenerate."""
        proxy = hand.as_actor(PROXY)
        seeds = await asyncio.gather(*(self._seed(proxy) for _ in range(self.explore)))
        ends = await asyncio.gather(*(self._play(proxy, seed, self.proxy_noise) for seed in seeds if seed is not None))
        # Of equal ones the earlier seed comes first: node ids tell in which order paths ended.
        ranked = sorted((e for e in ends if "reward" in e.scores), key=lambda e: -e.scores["reward"])
        half = self.keep // 2
        chosen = [*ranked[: self.keep - half], *ranked[len(ranked) - half :]] if len(ranked) > self.keep else ranked
        hand.event("select", None, f"the extremes of {len(ranked)} seeds by the proxy",
                   scores=[round(e.scores["reward"], 4) for e in chosen])  # fmt: skip
        again = await asyncio.gather(*(self._again(hand, tree, end) for end in chosen))
        for end, leaf in zip(chosen, again, strict=True):
            if leaf is not None:
                leaf.scores["proxy"] = end.scores["reward"]
        for seed in seeds:
            if seed is not None:
                hand.prune(seed, why="explored by the proxy")

    async def _seed(self, proxy: Hand) -> Node | None:
        grown = await proxy.extend(proxy.tree.root, max_tokens=1)
        return grown[0] if grown else None

    async def _play(self, hand: Hand, node: Node, noise: float) -> Node:
        draw: SamplingOptions = {"temperature": noise}
        return await play(hand, node, **draw)

    async def _again(self, hand: Hand, tree: Tree, end: Node) -> Node | None:
        first = tree.prefix(end)[len(tree.root)]
        seed = await hand.force(tree.root, first[None], role="policy", why="the seed of an explored path")
        if seed is None:
            return None
        seed.keep = np.zeros(len(seed), np.bool_)  # a draw from the prior teaches nothing
        return await self._play(hand, seed, self.noise)


@dataclass(frozen=True, slots=True)
class SolRl:
    """A copy with weights of a few bits denoises many seeds; only the extremes are denoised again and trained.

    The copy follows the policy after every update. It draws without noise, so its ranking of seeds holds for the
    policy; its images and outcomes are thrown away, and advantages are among the seeds drawn again. Differences from
    the paper: its objective (DiffusionNFT) needs no densities, and here it is the clipped surrogate of Flow-GRPO
    (reconstructed), so the policy draws with a little noise; its copy is FP4 with six steps of ten, and here it has
    integers of `bits` with all steps and is no faster.
    """

    card: ClassVar[Card] = Card(
        "sol_rl", "Sol-RL", "2604.06916", 2026,
        "equal reward up to 4.64 times sooner than with groups drawn in full precision (SANA, FLUX.1, SD3.5-L)",
        ("generate", "filter"), "flow_grpo", task="digits",
        counter=Counter("rollout/pruned/explored by the proxy"),
    )  # fmt: skip
    explore: int = 24
    """Seeds that the copy denoises (the paper's 96)."""
    keep: int = 8
    """Seeds that the policy denoises, half of them the best and half the worst (the paper's 24)."""
    bits: int = 4
    """Bits of the copy's weights."""
    noise: float = 0.3
    """Factor on the noise of the policy's own steps. Rank correlation with the copy on digits: 0.93 at 0.3, 0.67 at
    1."""
    proxy_noise: float = 0.0
    """The same for the copy; 1 is the control, whose ranking says little."""
    clip: float = 0.2
    """Half the window of the ratio."""
    kl: float = 0.0
    """Weight of the penalty on leaving the first policy."""

    def build(self) -> Parts:
        """Ranking by the copy, group credit, clipped surrogate."""
        check_group("sol_rl", self.keep)
        return Parts(
            "sol_rl", ProxyRanking(self.explore, self.keep, self.noise, self.proxy_noise), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="token",
            peers={PROXY: Peer(trained=False, bits=self.bits)},
        )  # fmt: skip
