"""XRPO: targeted exploration and exploitation (arXiv 2510.06672)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import ClassVar, Literal

import numpy as np

from rolltree.control.allocate import greedy
from rolltree.control.brief import brief
from rolltree.control.corpus import Corpus
from rolltree.control.order import ControlError, Order, Prompt
from rolltree.control.plan import Plan, Step
from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.entropy_shaping import leaf_only, per_leaf_mean
from rolltree.credit.outcome import action_values, outcomes
from rolltree.credit.registry import load_credit, register, resolve
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.table import Table

# Targeted exploration: rollouts where a mean reward becomes surer, and examples for dead prompts (XRPO).


@cache
def _quantile(alpha: float, df: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(df, 1 - alpha / 2))


def half_width(spread: float, n: int, alpha: float = 0.05) -> float:
    """h(n) = t_{1−α/2, n−1} · s / √n: half the interval of a prompt's mean reward. Infinite at n = 1 unless s is 0."""
    if n < 2:
        return math.inf if spread > 0 else 0.0
    return _quantile(alpha, n - 1) * spread / math.sqrt(n)


def priority(spread: float, n: int, total: int, alpha: float = 0.05, explore: float = 0.1) -> float:
    """Π = h(n) − h(n+1) + λ √(log(1 + T) / n): expected narrowing plus a bonus for few rollouts.

    The bonus keeps prompts without spread alive; its form is reconstructed from its arguments.
    """
    drop = 0.0 if n < 2 else half_width(spread, n, alpha) - half_width(spread, n + 1, alpha)
    return drop + explore * math.sqrt(math.log1p(total) / n)


@dataclass(frozen=True, slots=True)
class Xrpo:
    """A base round, then the rest of the budget in phases by priority; prompts that only fail are asked with examples.

    The budget is prompts × `mean` rollouts, examples included. Seeded rollouts are drawn with solved examples in front
    of the prompt and trained under the bare prompt, so the objective must divide by the distribution sampled from
    ("context_corrected"). Retrieval is by character trigrams instead of the paper's embedding model.
    """

    name: ClassVar[str] = "xrpo"
    paper: ClassVar[str] = "2510.06672"
    needs: ClassVar[frozenset[str]] = frozenset({"one turn"})
    mean: int = 0
    """Rollouts per prompt on average; 0 = the strategy's width."""
    base: int = 0
    """Rollouts of the first round; 0 = half of `mean`, at least 2."""
    phases: int = 2
    """Rounds in which the rest is handed out."""
    alpha: float = 0.05
    """One minus the confidence of the interval around a prompt's mean reward."""
    explore: float = 0.1
    """λ of the bonus."""
    examples: int = 2
    """Solved examples for prompts whose rollouts all failed; 0 = none."""
    seeded: int = 2
    """Rollouts with examples for such a prompt."""

    def __post_init__(self) -> None:
        if self.base == 1:
            raise ControlError("xrpo: base=1 gives no spread to decide by; give at least 2, or 0 for half the mean")
        if self.phases < 1:
            raise ControlError(f"xrpo: phases={self.phases} hands nothing out; give at least 1")

    def start(self) -> Corpus:
        """No example yet."""
        return Corpus()

    def plan(self, step: Step, state: Corpus) -> Plan:
        """Base, then phases; seeds are asked for beside the first phase."""
        mean = self.mean or step.width
        base = min(self.base or max(2, mean // 2), mean)
        prompts = step.take()
        rewards: dict[int, list[float]] = {p.place: [] for p in prompts}
        total = mean * len(prompts)
        delivered = yield [Order(p, base, why="base") for p in prompts]
        given = base * len(prompts)
        for phase in range(self.phases + 1):
            for d in delivered:
                if d.order.arm == "plain":
                    rewards[d.order.prompt.place].extend(d.rewards)
                    if d.solved_text:
                        state.add(d.order.prompt.uid, d.order.prompt.item.prompt, d.solved_text)
            left = total - given
            if left <= 0 or phase == self.phases:
                return
            orders = self._seeds(prompts, rewards, state, left) if phase == 0 else []
            left -= sum(o.width or 0 for o in orders)
            part = math.ceil(left / (self.phases - phase))
            orders += self._phase(prompts, rewards, part, given)
            given += sum(o.width or 0 for o in orders)
            delivered = yield orders

    def _phase(self, prompts: Sequence[Prompt], rewards: dict[int, list[float]], part: int, given: int) -> list[Order]:
        now = [rewards[p.place] for p in prompts]
        spread = [float(np.std(r, ddof=1)) if len(r) > 1 else 0.0 for r in now]

        def gain(i: int, n: int) -> float:
            return priority(spread[i], max(n, 1), given, self.alpha, self.explore)

        more = greedy(gain, [len(r) for r in now], part)
        return [
            Order(p, k, why=f"priority {gain(i, len(now[i])):.3f}")
            for i, (p, k) in enumerate(zip(prompts, more, strict=True)) if k
        ]  # fmt: skip

    def _seeds(
        self, prompts: Sequence[Prompt], rewards: dict[int, list[float]], corpus: Corpus, most: int
    ) -> list[Order]:
        out: list[Order] = []
        for prompt in prompts:
            outcomes = rewards[prompt.place]
            dead = bool(outcomes) and max(outcomes) <= 0
            shown = corpus.nearest(prompt, self.examples) if dead and self.examples and self.seeded else []
            if shown and most >= self.seeded:
                most -= self.seeded
                text = "".join(f"{question}{answer}\n" for question, answer in shown)
                asked = brief(text, "examples", before=True, hidden=True)
                out.append(Order(prompt, self.seeded, "seeded", asked, why=f"all {len(outcomes)} failed: examples"))
        return out


# Sharpen correct answers the policy finds unlikely.


@register("novelty", paper="XRPO, arXiv:2510.06672", family="shaping")
@dataclass(frozen=True, slots=True)
class Novelty:
    """A_i ← A_i + min(max(λ (1 − η_i), 0), κ A_i) on correct leaves, η_i = exp(s_i − mean s), s = mean log-prob (XRPO).

    `among` says whose mean s: the group's correct leaves, or all. Only positive advantages grow, by at most κ.
    Without length normalisation η would measure length. λ = 0 is the base.
    """

    base: Credit | str = "grpo"
    weight: float = 2.5
    """How much an unlikely right answer earns on top; 0 is the base credit."""
    clip: float = 0.5
    among: Literal["correct", "all"] = "correct"
    """What an answer's likelihood is compared with: the correct ones of the group, or all."""
    correct: float = 0.5

    @property
    def needs(self) -> frozenset[str]:
        """The base's, and log-probs."""
        return resolve(self.base).needs | {"logp"}

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage, sharpened."""
        if self.among not in ("correct", "all"):
            raise CreditError(f'novelty: among is {self.among!r}; choose "correct" or "all"')
        advantage = resolve(self.base)(table)
        leaf = leaf_only("novelty", advantage)
        right = table.live & (outcomes(table) > self.correct)
        likely = per_leaf_mean(table, action_values(table, "logp"))
        group = partition.leaf_groups(table, "tree", right if self.among == "correct" else table.live)
        mean = np.full(len(table.trees), 0.0)
        means = partition.mean(likely, group)
        mean[: len(means)] = np.nan_to_num(means)
        surprise = np.exp(np.minimum(likely - mean[table.leaf_tree], 50.0))
        more = np.minimum(np.maximum(self.weight * (1 - surprise), 0.0), self.clip * leaf)
        return replace(advantage, leaf=np.where(right & (leaf > 0), leaf + more, leaf))


@dataclass(frozen=True, slots=True)
class XrpoRecipe:
    """Rollouts by expected narrowing of each prompt's interval, examples for dead prompts, rare right answers raised.

    Rollouts drawn after examples are trained under the bare prompt against the distribution that sampled them. The
    bonus's form and the retriever are reconstructed.
    """

    card: ClassVar[Card] = Card(
        "xrpo", "Targeted exploration and exploitation", "2510.06672", 2025,
        "up to +4 points pass@1 and +6 cons@32 over GRPO and GSPO; up to 2.7 times faster convergence",
        ("control", "generate", "credit"), "grpo",
        Evidence("mean squared error of group means", "uniform width", "lower", 0.0005, seeds=5,
                 check="rolltree_papers.xrpo.study:xrpo"),
        counter=Counter("rollout/group_size_spread"),
    )  # fmt: skip
    group: int = 8
    base: int = 0
    phases: int = 2
    """Rounds in which the rest is handed out."""
    explore: float = 0.1
    """λ of the bonus."""
    examples: int = 2
    """Solved examples for prompts whose rollouts all failed; 0 = none."""
    seeded: int = 2
    """Rollouts with examples for such a prompt."""
    novelty: float = 2.5
    """λ: how strongly a right answer is raised for being unlikely."""
    novelty_clip: float = 0.5
    """κ: largest rise, as a share of the advantage."""
    clip: float = 0.2

    def build(self) -> Parts:
        """Phased allocation and novelty on the group's advantages."""
        check_group("xrpo", self.group)
        return Parts(
            "xrpo", Independent(self.group), load_credit("novelty", weight=self.novelty, clip=self.novelty_clip),
            load_objective("context_corrected", clip_low=self.clip, clip_high=self.clip), averaging="sequence",
            control=Xrpo(
                base=self.base, phases=self.phases, explore=self.explore, examples=self.examples, seeded=self.seeded
            ),
        )  # fmt: skip
