"""DTS and DTS*: diffusion tree sampling and search with a frozen policy (arXiv 2506.20701)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit.registry import load_credit
from rolltree.generate.branches import BranchError, places_of
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.turns import stretch
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree import Node, Tree

# Diffusion tree sampling: search over the draws of a path with soft values that every rollout improves.

CHOSEN = "chosen"
"""Key in a tree's notes: the leaf that a search has chosen."""


def log_mean_exp(values: Sequence[float], scale: float) -> float:
    """(1/λ)·log of the mean of exp(λ·v): not the sum, which would reward what has many children."""
    top = max(values)
    return top + math.log(sum(math.exp(scale * (v - top)) for v in values) / len(values)) / scale


@dataclass(frozen=True, slots=True)
class TreeSampling:
    """DTS and DTS* (arXiv 2506.20701, algorithm 1) on any policy that draws: denoising steps or segments of text.

    A path may branch at the prompt and at `places`. Each rollout goes down the tree while a node has as many children
    as its visits allow (|C| ≥ widen·N^alpha), draws one new child, and is rolled out to its end. Every node's value is
    (1/λ)·log mean exp(λ·v) of its children (`backup="mean"` and "max" are controls). Going down, "boltzmann" (DTS)
    takes a child with probability softmax(λ·v), "uct" (DTS*) the best of v + explore·√(log N/n). The answer is read off
    in the same way without drawing: "uct" then means the best value.
    """

    rollouts: int = 64
    """Most rounds; one that ends in a known leaf draws nothing."""
    places: tuple[int, ...] = ()
    """Actions since the prompt at which paths may branch."""
    scale: float = 10.0
    """λ."""
    alpha: float = 0.8
    widen: float = 2.0
    select: Literal["boltzmann", "uct"] = "uct"
    explore: float = 1.0
    backup: Literal["soft", "mean", "max"] = "soft"
    needs: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.scale <= 0 or self.widen <= 0 or not 0 <= self.alpha <= 1 or any(p < 1 for p in self.places):
            raise BranchError(
                f"a search with scale {self.scale}, widen {self.widen}, alpha {self.alpha} and places {self.places} "
                "makes no sense: scale and widen are above 0, alpha in [0, 1], places from 1 on"
            )

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Roll out until the rounds or the budget are over, then choose a leaf."""
        search = _Search(self, hand)
        for number in range(self.rollouts):
            if not await search.round(number):
                break
        search.choose()


@dataclass(slots=True)
class _Search:
    """Values and visits of one tree."""

    knobs: TreeSampling
    hand: Hand
    value: dict[int, float] = field(default_factory=dict[int, float])
    visits: dict[int, int] = field(default_factory=dict[int, int])
    longest: int = 0
    """Actions of the longest path so far: what a new one may cost."""

    async def round(self, number: int) -> bool:
        """One rollout and its backup; False where none can be paid any more."""
        path = [self.hand.tree.root]
        while (node := path[-1]).status != "done" or node.children:
            allowed = self.knobs.widen * max(self.visits.get(node.id, 1), 1) ** self.knobs.alpha
            known = self._children(node)
            if len(known) < allowed:
                if self.longest and self.hand.budget.remaining("decoded") < self.longest - self._place(node):
                    return False
                made = await self._roll_out(node)
                if not made:
                    return False
                path += made
                break
            path.append(self._pick(node, known, number))
        for node in reversed(path):
            self.visits[node.id] = self.visits.get(node.id, 1 if node.parent is None else 0) + 1
            self._back_up(node)
        return True

    def choose(self) -> None:
        """Go down without drawing and note the leaf."""
        node = self.hand.tree.root
        while known := self._children(node):
            node = self._soft(node, known, "choose") if self.knobs.select == "boltzmann" else self._best(known)
        for at, value in self.value.items():
            self.hand.tree[at].scores["value"] = value
        if node.parent is None:
            self.hand.event("note", None, "no rollout has an outcome to choose")
            return
        self.hand.tree.notes[CHOSEN] = node.id
        self.hand.tree.notes["answer"] = node.notes.get("answer")
        self.hand.event("select", node, f"read off by {self.knobs.select}", value=self.value[node.id])

    def _children(self, node: Node) -> list[Node]:
        return [c for c in self.hand.tree.children(node) if c.id in self.value]

    def _place(self, node: Node) -> int:
        return sum(len(n) for n in self.hand.tree.path(node)) - len(self.hand.tree.root)

    async def _roll_out(self, node: Node) -> list[Node]:
        """One new child of a node, and what it leads to, cut at the places where a path may branch."""
        made: list[Node] = []
        place = self._place(node)
        stops = [p for p in sorted(self.knobs.places) if p > place]
        for end in [*stops, None]:
            draw: SamplingOptions = {} if end is None else {"max_tokens": end - self._place(node)}
            grown = await stretch(self.hand, node, birth="resample" if node.children else None, **draw)
            if not grown:
                break
            node = grown[0]
            made.append(node)
            if node.status != "open":
                break
        if made and "reward" in made[-1].scores:
            self.value[made[-1].id] = made[-1].scores["reward"]
            self.longest = max(self.longest, self._place(made[-1]))
        return made

    def _back_up(self, node: Node) -> None:
        values = [self.value[c.id] for c in self._children(node)]
        if values:
            rule = self.knobs.backup
            soft = log_mean_exp(values, self.knobs.scale) if rule == "soft" else 0.0
            self.value[node.id] = soft if rule == "soft" else max(values) if rule == "max" else float(np.mean(values))

    def _pick(self, node: Node, known: Sequence[Node], number: int) -> Node:
        if self.knobs.select == "boltzmann":
            return self._soft(node, known, str(number))
        total = math.log(max(self.visits.get(node.id, 1), 1))
        bonus = [self.knobs.explore * math.sqrt(total / max(self.visits.get(c.id, 1), 1)) for c in known]
        return known[int(np.argmax([self.value[c.id] + b for c, b in zip(known, bonus, strict=True)]))]

    def _soft(self, node: Node, known: Sequence[Node], name: str) -> Node:
        raw = np.array([self.knobs.scale * self.value[c.id] for c in known])
        share = np.cumsum(np.exp(raw - raw.max()))
        drawn = self.hand.rng_at(node, "descend", name).uniform() * share[-1]
        return known[int(np.searchsorted(share, drawn, side="right").clip(max=len(known) - 1))]

    def _best(self, known: Sequence[Node]) -> Node:
        return max(known, key=lambda c: self.value[c.id])


@dataclass(frozen=True, slots=True)
class Dts:
    """Every rollout improves soft values all over the tree, and the next one goes where they are high.

    `rolltree rollout dts --task digits` searches; the leaf chosen stands in each tree's notes. Nobody trains on these
    trees in the paper; `rolltree train dts` takes GRPO's update on their leaves, which do not follow the policy's
    distribution. The evidence is DTS's read-out on chains of text whose target is enumerated.
    """

    card: ClassVar[Card] = Card(
        "dts", "Diffusion tree sampling", "2506.20701", 2025,
        "DTS* equals best-of-N with up to a fifth of the denoiser calls (Stable Diffusion 1.5, text diffusion)",
        ("generate", "control"), "flow_grpo",
        Evidence("distance to the distribution that is sampled from", "as many independent paths, weighed", "lower",
                 0.02, seeds=5, check="rolltree_papers.dts.study:dts"),
        task="digits", counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    rollouts: int = 64
    """Most rounds of a search; one that ends in a known leaf draws nothing."""
    branch: str = "0,2,4,6"
    """Denoising steps before which a path may branch, besides the prompt; the paper's images branch at every fifth of
    the steps."""
    scale: float = 10.0
    """λ of the soft values."""
    alpha: float = 0.8
    """How fast a node widens with its visits N: it may have widen · N^alpha children."""
    widen: float = 2.0
    """C: children that a node may have at its first visit."""
    select: Literal["boltzmann", "uct"] = "uct"
    """"boltzmann" is DTS, which samples; "uct" is DTS*, which searches."""
    explore: float = 0.3
    """Of the UCT bonus; rewards here lie in [0, 1]."""
    backup: Literal["soft", "mean", "max"] = "soft"
    """What a node is worth: log mean exp of its children, their mean, or the best."""

    def build(self) -> Parts:
        """The search; group credit and the clipped surrogate for those who train on it."""
        check_group("dts", self.rollouts)
        places = tuple(1 + step for step in places_of("dts", self.branch))
        search = TreeSampling(
            self.rollouts, places, self.scale, self.alpha, self.widen, self.select, self.explore, self.backup
        )
        return Parts("dts", search, load_credit("grpo"), load_objective("clipped"), averaging="sequence")
