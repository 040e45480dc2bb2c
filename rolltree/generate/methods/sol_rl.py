"""Explore cheaply, grow what matters: seeds are ranked by a coarse sampler, the extremes are drawn again (Sol-RL)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rolltree.generate.branches import BranchError
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.turns import play
from rolltree.tree import Node, Tree

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
