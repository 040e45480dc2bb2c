"""ARRoL: online rollout pruning (arXiv 2603.24840)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from rolltree.control.order import ControlError, Delivery, Order
from rolltree.control.plan import Plan, Step
from rolltree.control.probe import Judgement, Over, State
from rolltree.credit.registry import load_credit
from rolltree.filter.vote import WeighedVote
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.store.values import dumps, storable

# From a head's score to a probability: how often rollouts with such a score came out right.


@storable
@dataclass(slots=True)
class Calibrator:
    """Streaming counts of successes and failures by bins of the score (arXiv 2603.24840).

    P(success | bin) = π P(bin | 1) / (π P(bin | 1) + (1 − π) P(bin | 0)), with π the running share of successes and
    class-conditional frequencies smoothed by adding `smoothing` to each bin. `keep` multiplies all counts after each
    step: the head moves, so the same score comes to mean another probability. 1 never forgets, as published.
    """

    bins: int = 128
    smoothing: float = 1.0
    keep: float = 1.0
    right: list[float] = field(default_factory=list[float])
    wrong: list[float] = field(default_factory=list[float])

    def __post_init__(self) -> None:
        if not self.right:
            self.right, self.wrong = [0.0] * self.bins, [0.0] * self.bins

    def observe(self, scores: Sequence[float], outcomes: Sequence[float], shares: Sequence[float]) -> None:
        """Count the outcomes of a step, by scores given before they were known."""
        self.right = [x * self.keep for x in self.right]
        self.wrong = [x * self.keep for x in self.wrong]
        for i, outcome, share in zip(self._places(scores), outcomes, shares, strict=True):
            self.right[i] += share * outcome
            self.wrong[i] += share * (1 - outcome)

    def posterior(self, scores: Sequence[float]) -> NDArray[np.float64]:
        """Probability of success for each score; 1/2 before any outcome."""
        successes, failures = sum(self.right), sum(self.wrong)
        if successes + failures <= 0:
            return np.full(len(scores), 0.5)
        prior = (successes + self.smoothing) / (successes + failures + 2 * self.smoothing)
        room, at = self.bins * self.smoothing, self._places(scores)
        one = prior * (np.array(self.right) + self.smoothing) / (successes + room)
        none = (1 - prior) * (np.array(self.wrong) + self.smoothing) / (failures + room)
        return (one / (one + none))[at]

    def _places(self, scores: Sequence[float]) -> list[int]:
        return [min(int(score * self.bins), self.bins - 1) for score in scores]


# A small head that reads success off hidden states, trained on the fly on the outcomes of training rollouts.

Floats = NDArray[np.float64]
NAMES = ("w1", "b1", "w2", "b2")
BATCH = 64
"""Examples per update."""


@storable
@dataclass(slots=True, eq=False)
class QualityHead:  # noqa: PLW1641 - it changes as it learns, so it has no hash
    """A network of two layers with one logit, by Adam on the cross-entropy to outcomes in [0, 1] (arXiv 2603.24840).

    States are centred and scaled one by one before they are read, so that their size, which drifts with the weights,
    says nothing. After each step it passes `passes` times over the newest `memory` examples: the policy moves, and old
    states were another policy's. It begins with zeros in its last layer (score 1/2), its first examples fix its width.
    """

    hidden: int = 32
    lr: float = 3e-3
    decay: float = 1e-2
    """Weight decay of the matrices, as a share of the learning rate (AdamW)."""
    passes: int = 4
    memory: int = 1024
    updates: int = 0
    weights: dict[str, Floats] = field(default_factory=dict[str, Floats])
    first: dict[str, Floats] = field(default_factory=dict[str, Floats])
    second: dict[str, Floats] = field(default_factory=dict[str, Floats])
    states: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))
    """The newest examples, oldest first."""
    outcomes: Floats = field(default_factory=lambda: np.zeros(0))
    shares: Floats = field(default_factory=lambda: np.zeros(0))
    """What each example counts."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, QualityHead) and dumps(self) == dumps(other)

    def scores(self, states: Sequence[NDArray[np.float32]]) -> Floats:
        """Probabilities of success by the head alone; 1/2 before it has seen anything."""
        if not self.weights or not len(states):
            return np.full(len(states), 0.5)
        return _sigmoid(self._read(_scaled(self._checked(np.stack(states))))[0])

    def learn(self, states: Sequence[NDArray[np.float32]], outcomes: Sequence[float], shares: Sequence[float]) -> None:
        """Take in examples and train on the newest ones; `shares` say what each counts."""
        if not len(states):
            return
        new = np.stack(states).astype(np.float32)
        if not self.weights:
            self._begin(new.shape[1])
        self.states = np.concatenate([self.states, self._checked(new)])[-self.memory :]
        self.outcomes = np.concatenate([self.outcomes, np.asarray(outcomes, np.float64)])[-self.memory :]
        self.shares = np.concatenate([self.shares, np.asarray(shares, np.float64)])[-self.memory :]
        x = _scaled(self.states)
        for _ in range(self.passes):
            order = np.random.default_rng([71, self.updates]).permutation(len(x))
            for at in range(0, len(x), BATCH):
                rows = order[at : at + BATCH]
                self._update(x[rows], self.outcomes[rows], self.shares[rows])

    def _begin(self, width: int) -> None:
        rng = np.random.default_rng([73, width])
        shapes = {"w1": (width, self.hidden), "b1": (self.hidden,), "w2": (self.hidden,), "b2": (1,)}
        self.weights = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.weights["w1"] = rng.normal(0, np.sqrt(2 / width), shapes["w1"])
        self.first = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.second = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.states = np.zeros((0, width), np.float32)

    def _checked(self, states: NDArray[np.float32]) -> NDArray[np.float32]:
        if states.shape[1] != len(self.weights["w1"]):
            raise ControlError(
                f"the quality head was trained on states of width {len(self.weights['w1'])} and is given "
                f"{states.shape[1]}; resume with the same model, or start anew"
            )
        return states

    def _read(self, x: Floats) -> tuple[Floats, Floats]:
        """Logits, and the activations of the first layer."""
        w = self.weights
        active = np.maximum(x @ w["w1"] + w["b1"], 0.0)
        return active @ w["w2"] + w["b2"][0], active

    def _update(self, x: Floats, y: Floats, share: Floats) -> None:
        logits, active = self._read(x)
        pull = share * (_sigmoid(logits) - y) / max(float(share.sum()), 1e-12)
        back = np.outer(pull, self.weights["w2"]) * (active > 0)
        slope = {"w1": x.T @ back, "b1": back.sum(0), "w2": active.T @ pull, "b2": np.array([pull.sum()])}
        self.updates += 1
        for name in NAMES:
            self.first[name] = 0.9 * self.first[name] + 0.1 * slope[name]
            self.second[name] = 0.999 * self.second[name] + 0.001 * slope[name] ** 2
            mean = self.first[name] / (1 - 0.9**self.updates)
            size = np.sqrt(self.second[name] / (1 - 0.999**self.updates))
            kept = 1 - self.lr * self.decay if name[0] == "w" else 1.0
            self.weights[name] = kept * self.weights[name] - self.lr * mean / (size + 1e-8)


def _scaled(states: NDArray[np.float32]) -> Floats:
    x = states.astype(np.float64)
    x -= x.mean(1, keepdims=True)
    return x / (x.std(1, keepdims=True) + 1e-6)


def _sigmoid(x: Floats) -> Floats:
    return 0.5 * (1 + np.tanh(0.5 * x))


# Who goes on: survival probabilities from posteriors of success, with a fixed share surviving on average (ARRoL).

Rule = Literal["published", "signed", "random"]


@dataclass(frozen=True, slots=True)
class Survival:
    """p = clip(keep + δ + s·pull·(target − q), least, most), δ such that the mean of p is `keep` (arXiv 2603.24840).

    The published s is 1. As δ absorbs pull·target, `target` then acts through the clip alone and survivors shift
    towards failures whatever the pass rate: their mean success is E[q] − pull·Var(q)/keep. That balances groups solved
    more often than `target` and unbalances all others. "signed" takes s = sign(mean(q) − target): where failures are
    the rule, likely successes go on. "random" prunes as many by chance.
    """

    rule: Rule = "published"
    keep: float = 0.5
    target: float = 0.5
    pull: float = 0.5
    least: float = 0.1
    most: float = 0.9

    def __post_init__(self) -> None:
        if self.rule not in ("published", "signed", "random"):
            raise ControlError(f"arrol: no rule {self.rule!r}; there are published, signed and random")
        if not 0 < self.least <= self.keep <= self.most <= 1:
            raise ControlError(
                f"arrol: least={self.least}, keep={self.keep} and most={self.most} make no sense; give "
                "0 < least <= keep <= most <= 1"
            )

    def chances(self, posteriors: Sequence[float], groups: Sequence[str] | None = None) -> Floats:
        """Survival probabilities of rollouts that are compared, δ common to all, the sign by each one's own group."""
        q = np.asarray(posteriors, np.float64)
        if self.rule == "random" or not len(q):
            return np.full(len(q), self.keep)
        lean = self.pull * self._signs(q, groups) * (self.target - q)
        return np.clip(self.keep + self._shift(lean) + lean, self.least, self.most)

    def _signs(self, q: Floats, groups: Sequence[str] | None) -> Floats:
        if self.rule == "published":
            return np.ones(len(q))
        names = np.unique(["" for _ in q] if groups is None else list(groups), return_inverse=True)[1]
        means = np.bincount(names, q) / np.bincount(names)
        return np.where(means >= self.target, 1.0, -1.0)[names]

    def _shift(self, lean: Floats) -> float:
        """δ by bisection: the mean of the clipped probabilities rises with it from `least` to `most`."""
        low, high = self.least - self.keep - float(lean.max()), self.most - self.keep - float(lean.min())
        for _ in range(60):
            middle = (low + high) / 2
            mean = float(np.clip(self.keep + middle + lean, self.least, self.most).mean())
            low, high = (middle, high) if mean < self.keep else (low, middle)
        return (low + high) / 2


# Online rollout pruning by a quality head that reads hidden states while rollouts are written (ARRoL).

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


@dataclass(frozen=True, slots=True)
class ArrolRecipe:
    """GRPO on the survivors of groups from which half of the rollouts were pruned in flight.

    Advantages are of survivors alone. `rule="signed"` mends the published rule where fewer than half of the rollouts
    are right. The head's posterior is also the weight of a rollout's vote: each group says what its frequent and its
    heavy answer are worth (`reward/part/vote_frequent`, `vote_heavy`). In the evidence's short run the head has a
    warm-up of a few steps instead of 20, and fewer bins, which few outcomes can fill. `budget/probe_pruned_tokens`
    counts what that cost.
    """

    card: ClassVar[Card] = Card(
        "arrol", "Online rollout pruning", "2603.24840", 2026,
        "+2.3 to +3.0 points over GRPO and DAPO at 1.6 to 1.7 times their speed (1B to 8B)",
        ("generate", "control"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6,
                 settings=("arrol:group=8", "arrol:warm=5", "arrol:bins=16")),
        counter=Counter("budget/probe_pruned", unit="pruned {} rollouts", why="its head saw too few rollouts to prune",
                        option="give more --steps, or let it wait for fewer (--warm 5)"),
    )  # fmt: skip
    group: int = 16
    rule: Rule = "published"
    """"published", or "signed", which turns its direction where fewer than half of the rollouts are right."""
    over: Over = "group"
    """What rollouts are compared with: their group, all of a round (batch), or those seen lately (recent)."""
    tokens: int = 0
    """Where rollouts are judged; 0 = at 512, or at a quarter of the run's limit where that is less. Shorter ones
    are never pruned."""
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
    clip: float = 0.2

    def build(self) -> Parts:
        """Independent rollouts under a quality head's eyes, group credit, symmetric clip."""
        check_group("arrol", self.group)
        control = Arrol(
            self.rule, self.over, self.tokens, self.keep, self.target, self.pull, self.least, self.most, self.warm,
            self.bins, self.forget, self.reweigh,
        )  # fmt: skip
        return Parts(
            "arrol", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip), averaging="sequence", control=control,
            shapers=(WeighedVote(),),
        )  # fmt: skip
