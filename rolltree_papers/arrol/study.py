"""Pruning in flight on simulated rollouts whose chances are known: does it balance groups, and does the head hold up?

`python -m rolltree_papers.arrol.study [FOLDER]` writes pruning.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rolltree.control.order import Delivery, Order, Prompt
from rolltree.control.probe import Probed, auc
from rolltree.task.protocol import Item
from rolltree_papers.arrol import Arrol, ArrolState, Survival, SurvivalJudge
from studies.prompts.page import table
from studies.prompts.world import Floats, sigmoid

GROUP = 16
SEEDS = 5
Bools = NDArray[np.bool_]
Choose = Callable[[Floats, Floats, np.random.Generator], Bools]
"""(posteriors, outcomes, randomness), rows are groups → who survives."""


@dataclass(frozen=True, slots=True)
class By:
    """Survivors drawn by a rule from noisy posteriors, δ over each group or over all."""

    survival: Survival
    batch: bool = False
    shuffled: bool = False
    """Whether the head's word is dealt to the wrong rollouts."""

    def __call__(self, posteriors: Floats, outcomes: Floats, rng: np.random.Generator) -> Bools:
        """One draw."""
        q = rng.permuted(posteriors, axis=1) if self.shuffled else posteriors
        names = [str(g) for g in range(len(q))]
        if self.batch:
            flat = self.survival.chances(q.ravel().tolist(), [n for n in names for _ in range(q.shape[1])])
            chances = flat.reshape(q.shape)
        else:
            chances = np.array([self.survival.chances(row.tolist()) for row in q])
        return rng.random(q.shape) < chances


def foresee(posteriors: Floats, outcomes: Floats, rng: np.random.Generator) -> Bools:
    """The oracle: half of each group, as evenly right and wrong as the outcomes allow."""
    alive = np.zeros(outcomes.shape, np.bool_)
    half = outcomes.shape[1] // 2
    for row, y in zip(alive, outcomes, strict=True):
        order = rng.permutation(len(y))
        right, wrong = order[y[order] > 0], order[y[order] == 0]
        take = min(max(half // 2, half - len(wrong)), len(right))
        row[np.concatenate([right[:take], wrong[: half - take]])] = True
    return alive


RULES: dict[str, Choose] = {
    "random": By(Survival("random")),
    "published": By(Survival()),
    "published, δ over the batch": By(Survival(), batch=True),
    "signed": By(Survival("signed")),
    "signed, δ over the batch": By(Survival("signed"), batch=True),
    "signed, head shuffled": By(Survival("signed"), shuffled=True),
    "oracle": foresee,
}


def balance(
    choose: Choose, mean: float | None, seed: int, groups: int = 120, noise: float = 0.1
) -> tuple[float, float]:
    """Share of survivors that are right, and r(1−r) within groups.

    A rollout's chance is Beta with `mean` and a + b = 4; None draws each group's mean from logits N(−0.5, 1.5²). The
    head sees it with normal noise.
    """
    rng = np.random.default_rng([41, seed])
    means = np.full(groups, mean) if mean is not None else sigmoid(rng.normal(-0.5, 1.5, groups))
    chances = rng.beta(4 * means[:, None], 4 * (1 - means[:, None]), (groups, GROUP))
    outcomes = (rng.random(chances.shape) < chances).astype(float)
    alive = choose(np.clip(chances + rng.normal(0, noise, chances.shape), 0.01, 0.99), outcomes, rng)
    count = alive.sum(1)
    share = (outcomes * alive).sum(1) / np.maximum(count, 1)
    return float((outcomes * alive).sum() / alive.sum()), float((share * (1 - share)).mean())


@dataclass(frozen=True, slots=True)
class Followed:
    """A head that learned on the fly while what it is to learn moved."""

    auc: float
    ceiling: float
    """The AUC of the true chances."""
    error: float
    """Mean distance of posteriors from the true chances."""
    bias: float
    """Mean of posteriors less that of true chances."""


def follow(control: Arrol, seed: int, *, steps: int = 40, drift: float = 1.0, blind: bool = False) -> Followed:
    """A run's head and calibrator on 8 groups of 16 a step, pruned as in training.

    States are 16 normal numbers; the chance is a logistic function of them whose direction turns and whose level rises
    from −1.5 to 1.5 over the run, times `drift`. `blind` gives the head states of other rollouts. Measured over the
    second half of the run.
    """
    rng = np.random.default_rng([43, seed])
    width, state = 16, control.start()
    ways = np.linalg.qr(rng.normal(size=(width, 2)))[0]
    found: list[tuple[float, float, float, float]] = []
    for step in range(steps):
        turn = drift * np.pi / 2 * step / steps
        level = 1.5 * (2 * step / steps - 1) * drift
        x = rng.normal(size=(8 * GROUP, width))
        chances = sigmoid(2.0 * x @ (np.cos(turn) * ways[:, 0] + np.sin(turn) * ways[:, 1]) + level)
        outcomes = (rng.random(len(x)) < chances).astype(float)
        seen = rng.permutation(x) if blind else x
        probes = _pruned(control, state, seen, outcomes, rng)
        posteriors = np.array([p.judgement.posterior for p in probes])
        if step >= steps // 2:
            right = (outcomes > 0).tolist()
            score, best = auc([p.judgement.score for p in probes], right), auc(chances.tolist(), right)
            found.append(
                (score, best, float(np.abs(posteriors - chances).mean()), float((posteriors - chances).mean()))
            )
        order = Order(Prompt(Item("p", "", 0), step))
        state.learn([Delivery(order, (), probes=tuple(probes))], reweigh=control.reweigh)
    return Followed(*(float(x) for x in np.mean(found, 0)))


def _pruned(
    control: Arrol, state: ArrolState, seen: Floats, outcomes: Floats, rng: np.random.Generator
) -> list[Probed]:
    """One step's rollouts, judged group by group; those that are pruned stay without an outcome."""
    survival = Survival(control.rule, control.keep, control.target, control.pull, control.least, control.most)
    judge = SurvivalJudge(state, survival, control.over, control.tokens, state.steps < control.warm)
    out: list[Probed] = []
    for at in range(0, len(seen), GROUP):
        rows = range(at, at + GROUP)
        said = judge.judge([np.asarray(seen[i], np.float32) for i in rows], ["g"] * GROUP)
        for i, judgement in zip(rows, said, strict=True):
            pruned = bool(rng.random() >= judgement.keep)
            out.append(
                Probed(np.asarray(seen[i], np.float32), judgement, pruned, 1, None if pruned else float(outcomes[i]))
            )
    return out


FOLLOWED: dict[str, tuple[Arrol, float, bool]] = {
    "nothing pruned": (Arrol(warm=1_000, bins=16), 1.0, False),
    "published knobs (128 bins)": (Arrol(warm=5), 1.0, False),
    "16 bins": (Arrol(warm=5, bins=16), 1.0, False),
    "16 bins, counts fade by 0.9": (Arrol(warm=5, bins=16, forget=0.9), 1.0, False),
    "16 bins, fade 0.9, reweighed": (Arrol(warm=5, bins=16, forget=0.9, reweigh=True), 1.0, False),
    "16 bins, fade 0.9, nothing drifts": (Arrol(warm=5, bins=16, forget=0.9), 0.0, False),
    "16 bins, fade 0.9, states of other rollouts": (Arrol(warm=5, bins=16, forget=0.9), 1.0, True),
}


def page() -> str:
    """The page as text."""
    means: tuple[tuple[str, float | None], ...] = (("0.2", 0.2), ("0.5", 0.5), ("0.8", 0.8), ("mixed", None))
    found = {
        rule: [list(zip(*(balance(choose, mean, s) for s in range(SEEDS)), strict=True)) for _, mean in means]
        for rule, choose in RULES.items()
    }
    return "\n\n".join([
        "# Pruning in flight on simulated rollouts",
        "Regenerate with `python -m rolltree_papers.arrol.study docs/measured`. Chances of success are known; the "
        f"rules, the head and the calibrator are those that training runs. Means over {SEEDS} seeds with half of a "
        "95 % t interval.",
        "## Balance",
        f"Half of each group of {GROUP} survives. Each rollout has a chance of its own, Beta around the prompt's pass "
        "rate (a + b = 4); the head sees it with noise 0.1. Variance r(1−r) within the groups of survivors, by pass "
        "rate; \"mixed\" prompts have logits N(−0.5, 1.5²). The oracle knows the outcomes.",
        table(["rule", *(f"r(1−r), {name}" for name, _ in means)], [
            (rule, [variance for _, variance in columns]) for rule, columns in found.items()
        ]),
        "Share of survivors that are right.",
        table(["rule", *(name for name, _ in means)], [
            (rule, [share for share, _ in columns]) for rule, columns in found.items()
        ]),
        "## Head and calibration under drift",
        "40 steps of 8 groups of 16 rollouts; states are 16 normal numbers, chances a logistic function of them whose "
        "direction turns by 90° while the pass rate rises from 0.27 to 0.73. Measured before each step's outcomes are "
        "learned from, over the second half.",
        table(["", "AUC", "AUC of the true chances", "error of posteriors", "bias"], [
            (name, list(zip(*(_numbers(follow(c, s, drift=d, blind=b)) for s in range(SEEDS)), strict=True)))
            for name, (c, d, b) in FOLLOWED.items()
        ]),
    ]) + "\n"  # fmt: skip


def _numbers(found: Followed) -> tuple[float, ...]:
    return found.auc, found.ceiling, found.error, found.bias


def main(arguments: Sequence[str]) -> int:
    """Write the page into a folder."""
    folder = Path(arguments[0] if arguments else "docs/measured")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pruning.md").write_text(page(), encoding="utf-8")
    print(f"wrote {folder / 'pruning.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
