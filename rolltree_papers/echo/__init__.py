"""ECHO: entropy-confidence hybrid optimisation for test-time reinforcement learning (arXiv 2602.02150)."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rolltree.credit.registry import load_credit
from rolltree.engine.protocol import Engine, token_codec
from rolltree.filter.vote import MajorityVote
from rolltree.generate.backfill import backfill
from rolltree.generate.hand import Hand
from rolltree.generate.requests import SamplingOptions
from rolltree.generate.signals import Floats, Signal, SignalError, asked, check_threshold, features, rise, trailing_mean
from rolltree.generate.stems import alternative, stems
from rolltree.generate.turns import proceed
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError, check_group
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree

# Gates: where a finished stem may fork, and how wide (ECHO, arXiv 2602.02150).
#
# A place must be uncertain by itself, lie in an uncertain stretch, and be more uncertain than what came before it, so
# that a chain of equally uncertain tokens does not swallow the leaves.


class GateReading(NamedTuple):
    """Signals along a path, one number per policy action."""

    position: NDArray[np.int64]
    """Actions on the whole path before it, prompt included: what `hand.place` takes."""
    entropy: Floats
    confidence: Floats


@dataclass(frozen=True, slots=True)
class Gauge:
    """Which variants of entropy and confidence are read.

    Confidence is meant to fall with doubt. The paper's is the mean probability of the top k (`confidence:mass`, at most
    1/k); the released code's is −mean ln p over them, which is at least ln k and *rises* with doubt.
    """

    entropy: Signal = field(default_factory=lambda: Signal("entropy:top-normalised", 10))
    confidence: Signal = field(default_factory=lambda: Signal("confidence:mass", 5))

    def read(self, tree: Tree, leaf: Node) -> GateReading:
        """Both signals along the path to a leaf."""
        at: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        entropy, confidence = [np.zeros(0)], [np.zeros(0)]
        before = 0
        for node in tree.path(leaf):
            if node.role == "policy" and len(node):
                at.append(np.arange(before, before + len(node)))
                entropy.append(self.entropy.read(node))
                confidence.append(self.confidence.read(node))
            before += len(node)
        return GateReading(np.concatenate(at), np.concatenate(entropy), np.concatenate(confidence))


@dataclass(frozen=True, slots=True)
class Gate:
    """Opens at the first action i ≥ `depth` with H_i ≥ `entropy`, group confidence ≤ `confidence`, ΔH_i ≥ `rise`.

    ECHO's published thresholds (3.5, 1.2, 0.2) can never be met on the variants it computes; the first two defaults are
    ours, for peaked policies of small vocabularies. The width there is clip(round(least + α(H − H_low)/(H_high − H_low)
    − β(C − θ)/|θ|), 1, most), θ being the confidence threshold.
    """

    entropy: float = 0.7
    confidence: float = 0.195
    rise: float = 0.2
    depth: int = 4
    group: int = 4
    """Actions that group confidence is averaged over."""
    before: int = 4
    """Actions whose mean entropy ΔH compares with."""
    least: int = 1
    most: int = 4
    alpha: float = 2.0
    beta: float = 1.0
    low: float = 0.35
    """H_low of the width (1.0 beside a threshold of 3.5 as published)."""
    high: float = 1.4
    """H_high, which is not published (reconstructed)."""

    def check(self, gauge: Gauge, vocabulary: int) -> None:
        """Refuse thresholds that never or always fire on the variants in use."""
        check_threshold(gauge.entropy, ">=", self.entropy, vocabulary, where="the gate's entropy")
        check_threshold(gauge.confidence, "<=", self.confidence, vocabulary, where="the gate's group confidence")
        _, top = gauge.entropy.range(vocabulary)
        if self.rise > top:
            raise SignalError(
                f"the gate's rise of {self.rise:g} is never true: {gauge.entropy.kind} lies in [0, {top:.3g}]; "
                "choose a smaller rise"
            )
        if self.high <= self.low:
            raise SignalError(f"the gate's high={self.high:g} must be above low={self.low:g}, or no width is defined")

    def first(self, reading: GateReading) -> int | None:
        """Index of the first action where it opens."""
        group = trailing_mean(reading.confidence, self.group)
        open_ = (reading.entropy >= self.entropy) & (group <= self.confidence)
        open_ &= rise(reading.entropy, self.before) >= self.rise
        open_[: self.depth] = False
        return int(open_.argmax()) if open_.any() else None

    def width(self, reading: GateReading, index: int) -> int:
        """How many alternatives to force there."""
        group = float(trailing_mean(reading.confidence, self.group)[index])
        return self.formula(float(reading.entropy[index]), group)

    def formula(self, entropy: float, group: float) -> int:
        """The width at an entropy and a group confidence."""
        up = self.alpha * (entropy - self.low) / (self.high - self.low)
        down = self.beta * (group - self.confidence) / abs(self.confidence)
        return min(max(math.floor(self.least + up - down + 0.5), 1), self.most)


# Giving up on paths that lose confidence while they are written (ECHO, arXiv 2602.02150).


@dataclass(frozen=True, slots=True)
class Doubt:
    """Ends a path at the first action where one of three signs of being lost appears.

    - group confidence falls below `floor`;
    - `falls` drops of tail confidence in a row, at or below `tail_floor`;
    - entropy above its trailing mean `spikes` times in a row, by more than `spike` at last.

    ECHO's published thresholds (0.4, 1.0, 0.5) belong to another scale; the first two defaults are ours. It looks
    between stretches, so a path ends at the end of the chunk in which the sign appears.
    """

    floor: float = 0.12
    tail_floor: float = 0.17
    spike: float = 0.5
    falls: int = 3
    spikes: int = 3
    group: int = 4
    tail: int = 8
    before: int = 4
    gauge: Gauge = field(default_factory=Gauge)
    ending: Literal["truncate", "prune"] = "truncate"
    """"truncate": the leaf ends here, is verified as it stands and teaches (as published); "prune": it does not."""

    def check(self, vocabulary: int) -> None:
        """Refuse thresholds that never or always fire on the variant in use."""
        for value, name in ((self.floor, "floor"), (self.tail_floor, "tail floor")):
            check_threshold(self.gauge.confidence, "<=", value, vocabulary, where=f"doubt's {name}")
        check_threshold(self.gauge.entropy, ">=", self.spike, vocabulary, where="doubt's spike")

    def first(self, reading: GateReading) -> tuple[int, str] | None:
        """Index and name of the first sign."""
        tail = trailing_mean(reading.confidence, self.tail)
        climb = rise(reading.entropy, self.before)
        signs = {
            "low group confidence": trailing_mean(reading.confidence, self.group) < self.floor,
            "falling tail confidence": _in_a_row(np.diff(tail, prepend=tail[:1]) < 0, self.falls)
            & (tail <= self.tail_floor),
            "entropy spikes": _in_a_row(climb > 0, self.spikes) & (climb > self.spike),
        }
        found = [(int(sign.argmax()), name) for name, sign in signs.items() if sign.any()]
        return min(found) if found else None

    async def __call__(self, hand: Hand, leaf: Node) -> None:
        """End the leaf if there is a sign on its path."""
        reading = self.gauge.read(hand.tree, leaf)
        found = self.first(reading)
        if found is None:
            return
        index, why = found
        numbers = {"position": int(reading.position[index]), "confidence": float(reading.confidence[index])}
        if self.ending == "prune":
            hand.prune(leaf, why=why, **numbers)
        else:
            hand.close(leaf, "abort", why, **numbers)
            await hand.verify(leaf)


def _in_a_row(yes: NDArray[np.bool_], times: int) -> NDArray[np.bool_]:
    """Where something has been true for the last `times` entries."""
    count = np.zeros(len(yes), np.int64)
    for i, here in enumerate(yes):
        count[i] = (count[i - 1] if i else 0) + 1 if here else 0
    return count >= times


# Stems, then forced alternatives where a gate opens: entropy and confidence decide where, whether and how wide.


@dataclass(frozen=True, slots=True)
class GatedForks:
    """ECHO's generator (arXiv 2602.02150): one gate per stem, its most likely untaken tokens forced, restarts after.

    Forced tokens are not drawn from the policy, so leaves do not follow its distribution; the record says which are
    forced.
    """

    leaves: int = 16
    stems: int = 8
    gauge: Gauge = field(default_factory=Gauge)
    gate: Gate = field(default_factory=Gate)
    doubt: Doubt | None = field(default_factory=Doubt)
    """What ends paths early; None = nothing."""
    chunk: int = 16
    """Tokens between two looks at a path."""
    record: frozenset[str] = frozenset()
    """Extras to record for the credit, besides the gauge's."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action; alternatives enough for the widest fork."""
        wide = {f"top:{self.gate.most + 1}"}
        return asked(self.gauge.entropy.want, self.gauge.confidence.want, wide, self.record)

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded."""
        return features(self.want)

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse thresholds that can never fire under this vocabulary."""
        size = token_codec(engine, "ECHO").vocab_size
        self.gate.check(self.gauge, size)
        if self.doubt is not None:
            self.doubt.check(size)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Stems, gated alternatives, restarts."""
        draw: SamplingOptions = {"max_tokens": self.chunk} if self.doubt is not None else {}
        grown = await stems(hand, min(self.stems, self.leaves), want=self.want, watch=self.doubt, draw=draw)
        spare = self.leaves - len(grown)
        forced: list[Node] = []
        ready = [leaf for leaf in grown if leaf.status == "done" and leaf.finish != "abort"]
        opened = sum(self.gate.first(self.gauge.read(hand.tree, leaf)) is not None for leaf in ready)
        hand.event("note", None, f"the gate opens on {opened} of {len(ready)} stems", opened=opened, stems=len(ready))
        for leaf in ready:
            forced += await self._alternatives(hand, leaf, spare - len(forced))
        async with asyncio.TaskGroup() as group:
            for node in forced:
                group.create_task(proceed(hand, node, want=self.want, watch=self.doubt, **draw))
        await backfill(hand, "restart", self.leaves, want=self.want, draw=draw, watch=self.doubt)

    async def _alternatives(self, hand: Hand, leaf: Node, spare: int) -> list[Node]:
        """Force the likeliest untaken tokens where the gate opens first on a leaf's path."""
        reading = self.gauge.read(hand.tree, leaf)
        index = self.gate.first(reading)
        if index is None:
            return []
        position, width = int(reading.position[index]), self.gate.width(reading, index)
        taken, likely = _alternatives_at(hand.tree, leaf, position)
        tokens = [token for token in likely if token != taken][: min(width, spare)]
        numbers = {"entropy": float(reading.entropy[index]), "confidence": float(reading.confidence[index])}
        head = hand.place(leaf, position)
        hand.event("select", head, "the gate opens", width=width, granted=len(tokens), position=position, **numbers)
        made = [await alternative(hand, leaf, position, token, why="likely, not drawn") for token in tokens]
        return [node for node in made if node is not None and node.status != "failed"]


def _alternatives_at(tree: Tree, leaf: Node, position: int) -> tuple[int, list[int]]:
    """The action at a position of a leaf's path and the most likely ones there, best first."""
    for node in tree.path(leaf):
        if position < len(node):
            assert node.top is not None, f"node {node.id} was extended without alternatives"
            order = (-node.top.logp[position]).argsort(kind="stable")
            return int(node.actions[position]), [int(t) for t in node.top.ids[position][order]]
        position -= len(node)
    raise IndexError(f"the path to node {leaf.id} ends before the position")


@dataclass(frozen=True, slots=True)
class Echo:
    """Learns without labels from stems and forced alternatives where entropy is high and confidence low.

    Follows the paper's text: the released gate can never open (its entropy is at most ln 10 = 2.30 against a threshold
    of 3.5, its confidence at least ln 5 = 1.61 against one of 1.2), and every released script turns it off. The
    thresholds here are therefore our own, as shares of the largest value their signal can take, so that they keep their
    meaning under another number of alternatives; ones that cannot fire are refused, and each tree says on how many
    stems its gate opened. `stems` = `leaves` is the released run: no fork at all. ECHO's clip range per
    sequence, 0.05 + 0.15 σ(4(1 − C)), lies in [0.194, 0.197] because C, a mean over the top five, is at most 1/5;
    the constant stands in for it. The penalty of pruned paths, which no trainer reads, is left out. The paper has
    a KL loss, which is off here unless `kl` is given.
    """

    card: ClassVar[Card] = Card(
        "echo", "Entropy-confidence hybrid optimisation", "2602.02150", 2026,
        "0.63 to 12.36 points over test-time baselines (Qwen2.5-7B, Qwen3-8B)",
        ("generate", "control", "filter", "credit"), "ettrl",
        Evidence("pass@1", "ettrl", least=0.04, task="regime:fresh", seeds=6,
                 settings=("ettrl:stems=3", "echo:updates=4")),
        counter=Counter("rollout/births/forced"),
    )  # fmt: skip
    leaves: int = 16
    stems: int = 8
    """Rollouts from the root; as many as leaves = no fork at all."""
    entropy: float = 0.3
    """The gate opens from this share of the largest entropy on (ln of `entropy_top`; 0.7 nats of 2.3 by default)."""
    confidence: float = 0.975
    """... and up to this share of the largest group confidence (1/`confidence_top`; 0.195 of 0.2 by default)."""
    rise: float = 0.087
    """... where entropy has risen by this share (0.2 nats by default)."""
    most: int = 4
    """Most forks of a stem."""
    entropy_top: int = 10
    """Likeliest alternatives whose entropy is read."""
    confidence_top: int = 5
    """Likeliest alternatives whose mean log-prob is the confidence."""
    prune: Literal["none", "truncate", "prune"] = "truncate"
    """"truncate" ends a doubtful leaf where it is and lets it teach; "prune" leaves it out."""
    chunk: int = 4
    """Tokens between two looks for doubt; answers shorter than this are never ended early."""
    shape: float = 0.1
    """a of A_t(1 + a S_t)."""
    clip: float = 0.196
    updates: int = 8
    """Updates of a step; the paper takes one prompt of eight for each."""
    kl: float = 0.0
    ties: Literal["first", "shared", "drop"] = "first"
    """Equal shares: the answer of the earlier leaf wins (released code), every tied answer is right, or no
    group."""
    silent: Literal["wrong", "vote", "drop"] = "wrong"
    """Leaves without an answer: do not vote and are wrong; vote for "no answer" (ECHO's released code, where it
    can win); or are not trained on."""
    weigh: Literal["leaf", "fork"] = "leaf"
    """A vote per leaf, or one vote shared out evenly at each fork, so that branches of one wrong stem do not
    outvote independent leaves."""

    def build(self) -> Parts:
        """Gated forced forks, majority labels, entropy-confidence shaping of group credit."""
        check_group("echo", self.leaves)
        gauge = Gauge(
            Signal("entropy:top-normalised", self.entropy_top), Signal("confidence:mass", self.confidence_top)
        )
        for name in ("entropy", "confidence", "rise"):
            if not 0 <= getattr(self, name) <= 1:
                raise RecipeError(
                    f"echo: {name}={getattr(self, name):g} is no share of its signal's largest value; give 0 to 1"
                )
        nats, mass = math.log(self.entropy_top), 1 / self.confidence_top
        entropy = self.entropy * nats
        gate = Gate(
            entropy, self.confidence * mass, self.rise * nats, most=self.most, low=entropy / 2, high=2 * entropy
        )
        doubt = (
            None if self.prune == "none"
            else Doubt(0.6 * mass, 0.85 * mass, 0.217 * nats, gauge=gauge, ending=self.prune)
        )  # fmt: skip
        return Parts(
            "echo",
            GatedForks(self.leaves, self.stems, gauge, gate, doubt, self.chunk, record=frozenset({"entropy"})),
            load_credit("entropy_confidence", base="grpo", a=self.shape, k=self.confidence_top),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
            shapers=(MajorityVote(self.ties, self.silent, self.weigh),), optim={"minibatches": self.updates},
        )  # fmt: skip
