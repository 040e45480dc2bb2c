"""Sequential sampling against a prior: a prompt gets more rollouts where prior and sample disagree (V0.5)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.control.beliefs import Beliefs
from rolltree.control.order import ControlError, Order, Prompt
from rolltree.control.plan import Plan, Step, one_by_one


def shrinkage(prior: float, mean: float, n: int, variance: float | None = None) -> float:
    """The weight w of the prior in the baseline b = w·v + (1−w)·mean, from a plug-in test of the two (reconstructed).

    w = (s²/n) / (s²/n + max(0, (v − mean)² − s²/n)); s² is v(1−v) unless given, which is never 0 for 0 < v < 1.
    """
    noise = (prior * (1 - prior) if variance is None else variance) / n
    bias = max(0.0, (prior - mean) ** 2 - noise)
    return noise / (noise + bias) if noise + bias > 0 else 0.0


def expected_error(prior: float, mean: float, n: int, more: int = 0) -> float:
    """Mean squared error of the shrunk baseline with n + more rollouts, if the bias is what the n show it to be."""
    noise = prior * (1 - prior) / n
    bias = max(0.0, (prior - mean) ** 2 - noise)
    later = prior * (1 - prior) / (n + more)
    return later * bias / (later + bias) if later + bias > 0 else 0.0


@dataclass(frozen=True, slots=True)
class V05:
    """`least` rollouts, then one by one while one more is expected to cut the baseline's error by more than `cost`.

    Each prompt advances by itself. The prior is a discounted Beta posterior of the prompt's own past instead of the
    paper's value model over texts; a prompt never seen has the prior 1/2. It is written on the prompt as `prior`, which
    the credit `prior_fused` reads. The stopping rule is reconstructed.
    """

    name: ClassVar[str] = "v05"
    paper: ClassVar[str] = "2603.10848"
    needs: ClassVar[frozenset[str]] = frozenset()
    writes: ClassVar[frozenset[str]] = frozenset({"root:prior"})
    least: int = 4
    """Rollouts of a prompt in any case."""
    most: int = 16
    """Most rollouts of a prompt."""
    chunk: int = 2
    """Rollouts added at a time."""
    cost: float = 0.003
    """Smallest expected drop of the squared error per rollout that is worth one more."""
    visit: float = 0.9
    """What is left of a prompt's past when it is asked again."""
    idle: float = 0.995
    """What is left of a prompt's past after a step in which it is not asked."""

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most or self.chunk < 1:
            raise ControlError(
                f"v05: least={self.least}, most={self.most} and chunk={self.chunk} make no sense; "
                "give 1 <= least <= most and a chunk of at least 1"
            )

    def start(self) -> Beliefs:
        """Nothing is known."""
        return Beliefs(self.visit, self.idle)

    def plan(self, step: Step, state: Beliefs) -> Plan:
        """Every prompt by itself."""
        state.step = step.number
        delivered = yield one_by_one(lambda prompt: self._one(prompt, state), step.take())
        seen: dict[int, tuple[str, float, int]] = {}
        for d in delivered:
            uid, solved, n = seen.get(d.order.prompt.place, (d.order.prompt.uid, 0.0, 0))
            seen[d.order.prompt.place] = (uid, solved + d.solved, n + d.n)
        for uid, solved, n in seen.values():
            state.observe(uid, solved, n)

    def _one(self, prompt: Prompt, beliefs: Beliefs) -> Plan:
        prior = beliefs.mean(prompt.uid)
        solved, n, width, why = 0.0, 0, self.least, f"prior {prior:.2f}"
        while width > 0:
            (delivery,) = yield [Order(prompt, width, marks={"prior": prior}, why=why)]
            if not delivery.n:
                return
            solved, n = solved + delivery.solved, n + delivery.n
            drop = expected_error(prior, solved / n, n) - expected_error(prior, solved / n, n, 1)
            width = min(self.chunk, self.most - n) if drop > self.cost else 0
            why = f"prior {prior:.2f} against {solved / n:.2f}: one more cuts the error by {drop:.4f}"
