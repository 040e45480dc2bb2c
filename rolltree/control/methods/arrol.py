"""Online rollout pruning by a quality head that reads hidden states while rollouts are written (ARRoL)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rolltree.control.methods.arrol_calibrate import Calibrator
from rolltree.control.methods.arrol_quality import QualityHead
from rolltree.control.methods.arrol_survival import Rule, Survival
from rolltree.control.order import ControlError, Delivery, Order
from rolltree.control.plan import Plan, Step
from rolltree.control.probe import Judgement, Over, State
from rolltree.tree.values import storable

PAPER = 512
"""The published length in tokens at which rollouts are judged."""
LATELY = 256
"""Posteriors remembered for `over="recent"`."""


@storable
@dataclass(slots=True)
class ArrolState:
    """The head, what its scores mean, and how many steps it has watched."""

    head: QualityHead
    calibrator: Calibrator
    steps: int = 0
    lately: list[float] = field(default_factory=list[float])
    """The newest posteriors, oldest first."""

    def learn(self, delivered: Sequence[Delivery], *, reweigh: bool) -> None:
        """Take in a step's outcomes; nothing is learned from rollouts without one (pruned, failed)."""
        self.steps += 1
        probes = [p for d in delivered for p in d.probes]
        self.lately = [*self.lately, *(p.judgement.posterior for p in probes)][-LATELY:]
        known = [(p, p.outcome) for p in probes if p.outcome is not None]
        outcomes = [outcome for _, outcome in known]
        shares = [1 / p.judgement.keep if reweigh else 1.0 for p, _ in known]
        self.calibrator.observe([p.judgement.score for p, _ in known], outcomes, shares)
        self.head.learn([p.state for p, _ in known], outcomes, shares)


@dataclass(frozen=True, slots=True)
class SurvivalJudge:
    """The probe of one step."""

    state: ArrolState
    survival: Survival
    over: Over
    tokens: int
    warming: bool
    """Whether everybody goes on, whatever is seen."""

    def at(self, limit: int) -> int:
        """The given length, or the paper's where a quarter of the limit is not less."""
        return self.tokens or max(1, min(PAPER, limit // 4))

    def judge(self, states: Sequence[State], trees: Sequence[str]) -> list[Judgement]:
        """Scores, posteriors, and survival probabilities among those compared."""
        scores = self.state.head.scores(states)
        posteriors = self.state.calibrator.posterior(scores.tolist())
        return [
            Judgement(float(s), float(q), 1.0 if self.warming else p)
            for s, q, p in zip(scores, posteriors, self._chances(posteriors.tolist(), trees), strict=True)
        ]

    def _chances(self, posteriors: list[float], trees: Sequence[str]) -> list[float]:
        if self.over != "recent":
            return self.survival.chances(posteriors, trees).tolist()
        return [float(self.survival.chances([*self.state.lately, q])[-1]) for q in posteriors]


@dataclass(frozen=True, slots=True)
class Arrol:
    """The next prompts; about 1 − `keep` of their rollouts are ended at `tokens` tokens, so that survivors are mixed.

    The head learns from training rollouts that ended by themselves; pruned ones are unknown, never wrong, and as every
    survival probability is at least `least`, no kind of rollout goes unseen. `rule="published"` is the paper's;
    "signed" turns its direction where failures are the rule (see `Survival`). δ is solved over each prompt's rollouts
    (`over="group"`), over all of a round ("batch"), or against posteriors seen lately ("recent": no rollout waits for
    another, so trees and dialogues can be pruned too). `reweigh` counts an outcome by the inverse of its survival
    probability.
    """

    name: ClassVar[str] = "arrol"
    paper: ClassVar[str] = "2603.24840"
    needs: ClassVar[frozenset[str]] = frozenset()
    rule: Rule = "published"
    """The paper's rule, or the signed one, which turns its direction where fewer than half are right."""
    over: Over = "group"
    """What rollouts are compared with: their group, all of a round (batch), or those seen lately (recent)."""
    tokens: int = 0
    """Where rollouts are judged; 0 = at 512, or at a quarter of the run's limit where that is less. Shorter ones are
    never pruned."""
    keep: float = 0.5
    """Share of the rollouts that go on."""
    target: float = 0.5
    """Chance of being right at which a rollout leans neither way."""
    pull: float = 0.5
    """How strongly a rollout's chance to survive leans against its chance of being right."""
    least: float = 0.1
    """Least chance of a rollout to survive."""
    most: float = 0.9
    """Largest chance of a rollout to survive."""
    warm: int = 20
    """Steps in which the head learns and nothing is pruned."""
    bins: int = 128
    """Bins of the calibration from scores to chances of being right."""
    forget: float = 1.0
    """What is left of the calibrator's counts after a step."""
    reweigh: bool = False
    """Whether an outcome counts by the inverse of its chance to survive."""
    hidden: int = 32
    """Width of the head that judges rollouts."""
    memory: int = 1024
    """Rollouts that the head remembers to learn from."""
    passes: int = 4
    """Passes over these in a step."""

    def __post_init__(self) -> None:
        self._survival()
        if self.over not in ("group", "batch", "recent"):
            raise ControlError(f"arrol: no over={self.over!r}; there are group, batch and recent")
        if self.tokens < 0 or self.warm < 0:
            raise ControlError(f"arrol: tokens={self.tokens} and warm={self.warm} must not be below 0")
        if min(self.bins, self.hidden, self.memory, self.passes) < 1 or not 0 < self.forget <= 1:
            raise ControlError(
                f"arrol: bins={self.bins}, hidden={self.hidden}, memory={self.memory} and passes={self.passes} must be "
                f"at least 1, and forget={self.forget} a share that is kept, above 0 and at most 1"
            )

    def start(self) -> ArrolState:
        """A head that knows nothing."""
        head = QualityHead(self.hidden, passes=self.passes, memory=self.memory)
        return ArrolState(head, Calibrator(self.bins, keep=self.forget))

    def plan(self, step: Step, state: ArrolState) -> Plan:
        """One round under the head's eyes, from whose outcomes it then learns."""
        judge = SurvivalJudge(state, self._survival(), self.over, self.tokens, state.steps < self.warm)
        delivered = yield [Order(prompt, probe=judge, last=True) for prompt in step.take()]
        state.learn(delivered, reweigh=self.reweigh)

    def _survival(self) -> Survival:
        return Survival(self.rule, self.keep, self.target, self.pull, self.least, self.most)
