"""MARS²: multi-agent reinforced tree search (arXiv 2604.14564)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.normalise import Ddof, centred, scaled
from rolltree.credit.outcome import node_scores
from rolltree.credit.registry import load_credit, register
from rolltree.engine.protocol import Engine
from rolltree.filter.groups import Mixed
from rolltree.generate.hand import Hand
from rolltree.generate.search.attempts import attempt, said, score_of
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search, streams
from rolltree.generate.signals import features
from rolltree.generate.strategy import refuse_environment
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, RecipeError, check_group
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree
from rolltree.tree.table import Bools, Floats, Ints, Table

# Shape an attempt's own reward by its parent's and its siblings' before normalising over the tree.


def attempts(table: Table) -> tuple[Ints, Ints]:
    """Rows of the attempts (trained nodes with a `reward` that did not fail), and each one's parent attempt or -1."""
    is_one = np.fromiter(
        (
            n.trainable
            and "reward" in n.scores
            and n.status not in ("pruned", "failed")
            and not n.usage.startswith("dropped")
            for n in table.nodes
        ),
        np.bool_,
    )
    nearest = np.full(len(table.nodes), -1, np.int64)
    for level in table.levels[1:]:
        above = table.parent[level]
        nearest[level] = np.where(is_one[above], above, nearest[above])
    rows = np.flatnonzero(is_one)
    return rows, nearest[rows]


@register("sibling_shaping", paper="MARS², arXiv:2604.14564", family="tree")
@dataclass(frozen=True, slots=True)
class SiblingShaping:
    """R ← R + γ (R − b), b = (1−λ) R_parent + λ mean of the other siblings; then (R − mean)/std over the tree.

    For trees whose every attempt has its own `reward` (MARS²); the parent is the nearest attempt above. Where only one
    of the two exists it is b alone, where none does R stays. Computed from the unshaped rewards of all; `in_place`
    goes in node order instead, so children and later siblings see shaped rewards, as released. γ = 0 is plain
    normalisation over the attempts. Fold with multiplicity "once": an attempt is one sample, however often continued.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    gamma: float = 0.3
    blend: float = 0.5
    """Weight of the siblings' mean against the parent in the baseline."""
    in_place: bool = False
    """Whether later attempts see the shaped rewards of earlier ones, as released."""
    ddof: Ddof = 1
    eps: float = 1e-6

    def __call__(self, table: Table) -> Advantage:
        """The advantage of every attempt."""
        rows, parent = attempts(table)
        reward = np.zeros(len(table.nodes))
        reward[rows] = node_scores(table, "reward", rows)
        _, family = np.unique(np.where(parent >= 0, parent, -1 - table.tree[rows]), return_inverse=True)
        mates = partition.count(family) - 1
        if self.in_place:
            order = sorted(range(len(rows)), key=lambda i: (table.tree[rows[i]], table.nodes[rows[i]].id))
            batches = [np.array([i]) for i in order]
        else:
            batches = [np.arange(len(rows))]
        sums = partition.total(reward[rows], family)
        for at in batches:
            own, here = reward[rows[at]], family[at]
            others = np.divide(sums[here] - own, mates[here], out=np.zeros(len(at)), where=mates[here] > 0)
            shaped = self._shaped(own, np.where(parent[at] >= 0, reward[parent[at]], np.nan), others, mates[here] > 0)
            reward[rows[at]] = shaped
            if self.in_place:
                sums[here] += shaped - own
        group = np.full(len(table.nodes), -1, np.int64)
        group[rows] = table.tree[rows]
        middle = centred(reward, group, "mean")
        return Advantage(node=scaled(middle, reward, group, "std", ddof=self.ddof, eps=self.eps))

    def _shaped(self, own: Floats, above: Floats, others: Floats, has_mates: Bools) -> Floats:
        has_parent = np.isfinite(above)
        share = np.where(has_parent & has_mates, self.blend, np.where(has_mates, 1.0, 0.0))
        baseline = (1 - share) * np.where(has_parent, above, 0.0) + share * others
        return np.where(has_parent | has_mates, own + self.gamma * (own - baseline), own)


# Thompson sampling over scores: draw what a choice may be worth, take the largest draw.
#
# MARS² (arXiv 2604.14564) decides by it whether a tree of attempts grows wider or deeper, where, and by whose hand.


@dataclass(frozen=True, slots=True)
class Prior:
    """What is believed of a score before any was seen.

    `normal`: normal-inverse-gamma, σ² ~ InvGamma(ν/2, ντ²/2), μ ~ N(m, σ²/κ). Its published mean of 0 lies at the
    bottom of scores in [0, 1], so a choice that was tried looks better than one that was not. `beta`: Beta(½, ½).
    """

    kind: Literal["normal", "beta"] = "normal"
    mean: float = 0.0
    strength: float = 1.0
    """κ."""
    freedom: float = 1.0
    """ν."""
    spread: float = 0.1
    """τ²."""

    def draw(self, scores: Sequence[float], rng: np.random.Generator) -> float:
        """A sample of the mean score from the posterior."""
        seen = np.asarray(scores, np.float64)
        n = len(seen)
        if self.kind == "beta":
            total = float(np.clip(seen, 0.0, 1.0).sum())
            return float(rng.beta(0.5 + total, 0.5 + n - total))
        average = float(seen.mean()) if n else 0.0
        strength, freedom = self.strength + n, self.freedom + n
        mean = (self.strength * self.mean + n * average) / strength
        scatter = self.freedom * self.spread + float(((seen - average) ** 2).sum())
        scatter += self.strength * n / strength * (average - self.mean) ** 2
        variance = scatter / 2 / float(rng.gamma(freedom / 2))
        return float(rng.normal(mean, np.sqrt(variance / strength)))

    def best(self, choices: Sequence[Sequence[float]], rng: np.random.Generator) -> int:
        """Index of the choice whose draw is largest."""
        return int(np.argmax([self.draw(scores, rng) for scores in choices]))


# Trees of attempts: every node is a complete answer, and its children are answers given with it in sight (MARS²).
#
# A search over whole answers (`rolltree.generate.search.attempts`) whose descent is Thompson sampling.


@dataclass(frozen=True, slots=True)
class Attempts:
    """MARS²'s generator (arXiv 2604.14564): several policies answer in one tree, one attempt after the other.

    On the way down from the root each node draws, by Thompson sampling, whether to be answered anew (GEN) or through
    one of its children (CONT), which child, and, for a new attempt, by which agent. A new score counts for its agent,
    for GEN of its parent, for itself and every attempt above it, and for CONT one level above each of these. That an
    attempt's own score counts for itself is (reconstructed).
    """

    nodes: int = 8
    """Attempts per prompt, failed ones included."""
    agents: tuple[str, ...] = ("policy", "peer")
    """Actors; each writes with the engine of its name where the run has one, else with the run's own."""
    again: str = "{prompt}"
    """What is said after an attempt to get another one; {prompt}, {answer} and {score} stand for the item's prompt and
    the attempt's answer and score."""
    choose: Literal["thompson", "chance", "wide"] = "thompson"
    """"chance": GEN or CONT, child and agent by fair draws; "wide": always from the root, agents in turn."""
    prior: Prior = field(default_factory=Prior)
    record: frozenset[str] = frozenset()
    """Extras to record for the credit."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action."""
        return self.record

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded."""
        return features(self.record)

    def asks(self, hand: Hand, move: Move[Node]) -> str:
        """The text that asks for another attempt; nothing is asked at the root."""
        node = move.node
        if node.parent is None:
            return ""
        return self.again.format(prompt=hand.item.prompt, answer=said(node), score=score_of(node))

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse environments: an attempt is one run of tokens, with one score."""
        refuse_environment(task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """One attempt after the other; prompts run side by side."""
        search_of = _TeamSearch(self, hand)
        await search(
            search_of, SearchGraph(tree.root), search_of.make, turns=self.nodes,
            rng=streams(hand),
        )  # fmt: skip


class _TeamSearch:
    """Scores of one tree by what they tell about."""

    def __init__(self, knobs: Attempts, hand: Hand) -> None:
        self.knobs = knobs
        self.hand = hand
        self.agent: defaultdict[str, list[float]] = defaultdict(list)
        self.own: defaultdict[int, list[float]] = defaultdict(list)
        """Of an attempt and everything below it."""
        self.gen: defaultdict[int, list[float]] = defaultdict(list)
        self.cont: defaultdict[int, list[float]] = defaultdict(list)

    def moves(self, moment: Moment[Node]) -> Sequence[Move[Node]]:
        """Where the next attempt is made, and by whom."""
        agents, root = self.knobs.agents, moment.graph.root
        if self.knobs.choose == "wide":
            return [Move(root, "attempt", by=agents[moment.turn % len(agents)])]
        place = root
        while children := [child for child in place.children if not child.closed]:
            if self.pick((self.gen[place.id], self.cont[place.id]), moment.rng) == 0:
                break
            place = children[self.pick([self.own[child.id] for child in children], moment.rng)]
        agent = agents[self.pick([self.agent[name] for name in agents], moment.rng)]
        seen = {f"of {name}": float(np.mean(self.agent[name])) for name in agents if self.agent[name]}
        why = f"{agent} answers at depth {place.depth}"
        self.hand.event("select", place.payload, why, agent=agent, depth=place.depth, **seen)
        return [Move(place, "attempt", by=agent)]

    def pick(self, choices: Sequence[Sequence[float]], rng: np.random.Generator) -> int:
        """One of several, by their scores or by chance."""
        if self.knobs.choose == "chance":
            return int(rng.integers(len(choices)))
        return self.knobs.prior.best(choices, rng)

    async def make(self, moves: Sequence[Move[Node]]) -> Sequence[Sequence[Made[Node]]] | None:
        """One attempt, scored; None where the budget has ended."""
        made = await attempt(self.hand.as_actor(moves[0].by), moves[0], self.knobs.asks, want=self.knobs.want)
        return None if made is None else [made]

    def backup(self, graph: SearchGraph[Node], move: Move[Node], nodes: Sequence[SearchNode[Node]]) -> None:
        """Book a new attempt's score wherever it tells something."""
        for node in nodes:
            if node.value is None:
                continue
            self.agent[move.by].append(node.value)
            self.gen[move.node.id].append(node.value)
            self.own[node.id].append(node.value)
            path = move.node.path()
            for above, here in pairwise(path):
                self.own[here.id].append(node.value)
                self.cont[above.id].append(node.value)


@dataclass(frozen=True, slots=True)
class Mars2:
    """Two policies answer in one tree, each with the other's attempts in sight; every attempt is one sample.

    Both are trained, each on the attempts it wrote, with weights and optimizer of its own (`train_peer=False` keeps
    the second as it is). `peer` names its model, which must share the first one's tokenizer; by default it starts as a
    copy, so the two differ only by what they then learn. Attempts are shaped by parent and siblings and normalised
    over the tree. The ratio is that of an attempt as a whole (GSPO); `ratio="token"` clips each token. What asks for
    another attempt says what the one above scored and states the problem again; the wording is ours. The overlong
    penalty is left out, since attempts end at the task's limit. An attempt has all attempts above it in its context,
    where the paper's has its parent alone. An attempt below which nothing could be finished does not teach. The events
    "answers at depth" say where the search went.
    """

    card: ClassVar[Card] = Card(
        "mars2", "Multi-agent reinforced tree search", "2604.14564", 2026,
        "up to 8.0 points pass@1 over single-agent baselines on code, for several pairs of models",
        ("generate", "control", "credit"), "gspo",
        Evidence("solve rate", "the better agent alone, best of 8", check="rolltree_papers.mars2.study:mars2", seeds=5),
        counter=Counter("rollout/births/boundary"),
    )  # fmt: skip
    nodes: int = 8
    """Attempts per prompt, failed ones included."""
    peer: str = ""
    """Model of the second policy: a name, a folder or a hub id; "" = a copy of the first."""
    train_peer: bool = True
    """Whether the second policy learns too."""
    again: str = "\n[{score}] {prompt}"
    """What asks for another attempt: {prompt}, {answer} and {score} are filled in."""
    choose: Literal["thompson", "chance", "wide"] = "thompson"
    """"chance": GEN or CONT, child and agent by fair draws; "wide": always from the root, agents in turn."""
    prior: Literal["normal", "beta"] = "normal"
    """What is believed of a place before anything was tried there."""
    gamma: float = 0.3
    """γ of R + γ(R − b); 0 = no shaping, as in the released workflow, which loses the parent's index."""
    blend: float = 0.5
    """λ of b = (1 − λ) R_parent + λ mean of siblings."""
    in_place: bool = False
    """Shape in node order, so that children see shaped parents, as the released function does."""
    ratio: Literal["sequence", "token"] = "sequence"
    """Whether the clip bounds the ratio of an attempt as a whole or of each token."""
    updates: int = 8
    """Updates of a step: the paper's batch of 128 goes in mini-batches of 16."""
    clip_low: float = 0.0
    clip_high: float = 0.0
    """Bounds of the ratio's clip; 0 = 3e-4 and 4e-4 for sequences (GSPO's), 0.2 for tokens."""
    kl: float = 1e-3
    sampling_rounds: int = 1

    def build(self) -> Parts:
        """A Thompson tree of attempts, shaped rewards over all of them, clipped and truncated importance weights."""
        check_group("mars2", self.nodes)
        if self.choose not in ("thompson", "chance", "wide"):
            raise RecipeError(f"mars2: choose={self.choose!r} is none of thompson, chance, wide")
        if self.ratio not in ("sequence", "token"):
            raise RecipeError(f"mars2: ratio={self.ratio!r} is neither 'sequence' nor 'token'")
        sequence = self.ratio == "sequence"
        low, high = self.clip_low or (3e-4 if sequence else 0.2), self.clip_high or (4e-4 if sequence else 0.2)
        attempts = Attempts(self.nodes, again=self.again, choose=self.choose, prior=Prior(self.prior))
        return Parts(
            "mars2", attempts,
            load_credit("sibling_shaping", gamma=self.gamma, blend=self.blend, in_place=self.in_place),
            load_objective(
                "gspo" if sequence else "clipped", clip_low=low, clip_high=high, kl=self.kl, correction="tis"
            ),
            averaging="sequence" if sequence else "token", multiplicity="once", unit="attempt",
            filters=(Mixed(of="attempts"),), rounds=self.sampling_rounds,
            peers={"peer": Peer(self.peer, self.train_peer)}, optim={"minibatches": self.updates},
        )  # fmt: skip
