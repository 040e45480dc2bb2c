"""Targeted exploration: rollouts where a mean reward becomes surer, and examples for dead prompts (XRPO)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np

from rolltree.control.allocate import greedy
from rolltree.control.brief import brief
from rolltree.control.features import likeness
from rolltree.control.order import ControlError, Order, Prompt
from rolltree.control.plan import Plan, Step
from rolltree.tree.values import storable


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


@storable
@dataclass(slots=True)
class Corpus:
    """Verified right answers by prompt, the latest `most` of them."""

    most: int = 512
    solved: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Prompt's id → its text and the answer."""

    def add(self, uid: str, prompt: str, answer: str) -> None:
        """Remember a right answer."""
        self.solved.pop(uid, None)
        self.solved[uid] = [prompt, answer]
        while len(self.solved) > self.most:
            del self.solved[next(iter(self.solved))]

    def nearest(self, prompt: Prompt, count: int) -> list[list[str]]:
        """The most similar other prompts with their answers."""
        others = [pair for uid, pair in self.solved.items() if uid != prompt.uid]
        if not others:
            return []
        like = likeness([prompt.item.prompt], [text for text, _ in others])[0]
        return [others[i] for i in np.argsort(-like, kind="stable")[:count]]


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
