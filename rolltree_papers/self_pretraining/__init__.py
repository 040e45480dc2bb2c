"""Self-Improving Pretraining: online preference between suffixes (arXiv 2601.21343)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import load_credit, register
from rolltree.engine.protocol import Engine
from rolltree.filter.lengths import Shaper
from rolltree.filter.parts import Composite
from rolltree.filter.shaping import RewardPart, Rewards
from rolltree.generate.forced import Demonstrations
from rolltree.generate.hand import Hand
from rolltree.generate.judge.against import all_pairs
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.protocol import Judge, JudgeError, entries
from rolltree.generate.judged import JUDGED, ended
from rolltree.generate.strategy import ChecksEngine, TreeStrategy, written
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, RecipeError
from rolltree.task.protocol import Task
from rolltree.tree import Tree
from rolltree.tree.table import Table

# The best against the worst of a group: what a preference objective reads.


@register("extremes", paper="Self-Improving Pretraining, arXiv:2601.21343", family="pairwise")
@dataclass(frozen=True, slots=True)
class Extremes:
    """A = +1 on the best leaves of a group, −1 on the worst, 0 between; 0 for all where none is better (the pairs of
    online DPO in Self-Improving Pretraining, arXiv:2601.21343).

    Equal leaves share the place: with one best and one worst it is the paper's single pair. Leaves in between do not
    teach. Meant for the objective `pairwise`, which compares every +1 with every −1 of a group and also takes
    candidates that the policy did not write; under a policy gradient it is a two-sided selection without a scale.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    by: partition.By = "tree"

    def __call__(self, table: Table) -> Advantage:
        """The place of every live leaf."""
        reward = outcomes(table)
        group = partition.leaf_groups(table, self.by)
        low = partition.spread(partition.lowest(reward, group), group)
        high = partition.spread(-partition.lowest(-reward, group), group)
        place = (reward == high).astype(np.float64) - (reward == low)
        told = (group >= 0) & (high > low)
        return Advantage(leaf=np.where(told, place, 0.0), counted=told & (place != 0))


# Leaves compared with all others of their tree by a judge: a reward where answers can be compared and not graded.


@dataclass(frozen=True, slots=True)
class Compared:
    """Compares every two leaves in both orders, and writes the share of readings that each won to `judge`.

    n leaves cost n · (n − 1) readings (self-improving pretraining's judge, arXiv 2601.21343).
    """

    inner: TreeStrategy
    judge: Judge

    @property
    def writes(self) -> frozenset[str]:
        """Its grade, which a reward may have for a part, and what the strategy writes."""
        return written(self.inner) | {f"part:{JUDGED}"}

    @property
    def needs(self) -> frozenset[str]:
        """Of the strategy."""
        return self.inner.needs

    @property
    def want(self) -> frozenset[str]:
        """What the strategy records."""
        return getattr(self.inner, "want", frozenset[str]())

    def check(self, engine: Engine, task: Task) -> None:
        """As of the strategy."""
        if isinstance(self.inner, ChecksEngine):
            self.inner.check(engine, task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Grow, then compare."""
        await self.inner.grow_tree(tree, hand)
        leaves = ended(tree)
        if len(leaves) < 2:
            for leaf in leaves:
                leaf.usage = "dropped: there was nothing to compare it with"
            return
        rng = hand.rng.child("compared", self.judge.name).generator()
        won = await all_pairs(hand, self.judge, entries(hand, leaves), rng)
        for leaf, share in zip(leaves, won, strict=True):
            if not np.isnan(share):
                leaf.scores[JUDGED] = float(share)
            elif min(hand.budget.remaining("judge_calls"), hand.budget.remaining("decoded")) < 1:
                leaf.usage = "dropped: the budget ended before it was judged"
            else:
                hand.fail(leaf, "judging", JudgeError(f"the judge {self.judge.name!r} compared it with no other"))
                for name in ("reward", "solved"):  # what failed has no outcome
                    leaf.scores.pop(name, None)


@dataclass(frozen=True, slots=True)
class SelfPretraining:
    """Candidates for what follows a prefix: the text as it was found, the text mended, and the policy's own; the judged
    best is preferred to the judged worst.

    A preference needs no sampling probability, so text the policy did not write can win or lose; a policy gradient
    could not use it. Early the mended text wins, later the policy's own. The judge is the task's verifier, or a frozen
    copy of the first policy that compares every two candidates in both orders by their likelihood, where the paper has
    a tuned judge of quality and one of safety; training it and the rewriter is left out. The found text is an expert's
    answer with mistakes and the mended one without. Equal candidates share their place.
    """

    card: ClassVar[Card] = Card(
        "self_pretraining", "Self-Improving Pretraining", "2601.21343", 2026,
        "86.3 % of judgements of quality against 50, factuality 57.6 against 42.3; 16 rollouts better than 1",
        ("generate", "credit", "objective"), None,
        Evidence(
            "bad continuations of a bad prefix", "likelihood of the judged best candidate", "lower", 0.01, seeds=5,
            check="rolltree_papers.self_pretraining.study:self_pretraining",
        ),
        counter=Counter("policy/pair_accuracy"),
    )  # fmt: skip
    rollouts: int = 6
    """The policy's own candidates for each prefix (16 in the paper's continued training, 1 from scratch)."""
    mended: int = 1
    """Candidates that are the text, mended."""
    found: int = 1
    """Candidates that are the text as it was found."""
    judge: Literal["verifier", "likelihood"] = "verifier"
    """Who says which candidate is best: the task's verifier, or a frozen copy of the first policy."""
    noise: float = 0.3
    """How often the found text errs."""
    beta: float = 0.1
    """How steeply a preference saturates (DPO's β)."""
    length_mean: bool = False
    """Whether candidates are compared by mean log-prob instead of the sum."""
    imitate: float = 0.0
    """Weight of the chosen candidate's likelihood beside the preference (RF-NLL)."""

    def build(self) -> Parts:
        """Candidates of three sources, the best against the worst, online DPO."""
        if self.rollouts + self.mended + self.found < 2:
            raise RecipeError("self_pretraining: one candidate is preferred to nothing; give two or more")
        own: TreeStrategy = Demonstrations(self.mended, self.found, self.noise, self.rollouts)
        shapers, peers = tuple[Shaper, ...](), dict[str, Peer]()
        if self.judge == "likelihood":
            own, peers = Compared(own, Likelihood()), {"judge": Peer(trained=False, writes=False)}
            shapers = (Composite(Rewards((RewardPart(JUDGED),))),)
        return Parts(
            "self_pretraining", own, load_credit("extremes"),
            load_objective("pairwise", beta=self.beta, length_mean=self.length_mean, imitate=self.imitate),
            averaging="sequence", shapers=shapers, peers=peers,
        )  # fmt: skip
