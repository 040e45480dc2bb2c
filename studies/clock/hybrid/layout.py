"""Weights of one model on the devices of a replica, in the layout that trains and in the one that generates.

A replica of p · t devices becomes d_g = p·t / (p_g·t_g) replicas for generating. Each device must hold the generating
shard of its place; where that contains its own training shard nothing is held twice, and the way back is free.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rolltree.errors import RolltreeError

Part = tuple[int, int]
"""A training shard: its stage and its tensor part."""


class LayoutError(RolltreeError, ValueError):
    """Sizes that do not divide one another."""


@dataclass(frozen=True, slots=True)
class Resharding:
    """From p × t to p_g × t_g."""

    p: int
    t: int
    p_g: int
    t_g: int

    def __post_init__(self) -> None:
        if self.p % self.p_g or self.t % self.t_g:
            raise LayoutError(
                f"{self.p} × {self.t} cannot become {self.p_g} × {self.t_g}: give generating sizes that divide the "
                "training ones"
            )

    @property
    def replicas(self) -> int:
        """Generating replicas of one training replica, d_g."""
        return self.p * self.t // (self.p_g * self.t_g)

    def own(self, rank: int) -> Part:
        """The shard that a device trains."""
        return divmod(rank, self.t)

    def covered(self, place: Part) -> set[Part]:
        """Training shards that make up a generating one."""
        stages, tensors = self.p // self.p_g, self.t // self.t_g
        return {
            (place[0] * stages + a, place[1] * tensors + b) for a in range(stages) for b in range(tensors)
        }  # fmt: skip

    def strided(self, rank: int) -> Part:
        """A device generates with the shard that contains what it trains."""
        stage, tensor = self.own(rank)
        return stage // (self.p // self.p_g), tensor // (self.t // self.t_g)

    def contiguous(self, rank: int) -> Part:
        """Devices next to one another make up a generating replica, whatever they train."""
        return divmod(rank % (self.p_g * self.t_g), self.t_g)

    def twice(self, place: Callable[[int], Part]) -> int:
        """Training shards that devices must hold beside what they generate with."""
        return sum(self.own(rank) not in self.covered(place(rank)) for rank in range(self.p * self.t))

    def fetched(self, place: Callable[[int], Part]) -> float:
        """Share of the model that each device receives, mean."""
        ranks = range(self.p * self.t)
        return sum(len(self.covered(place(r)) - {self.own(r)}) for r in ranks) / (self.p * self.t) ** 2
