"""Claims of papers, checked exactly or by seeded simulation, and reported as they come out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rolltree.credit.advantage import Advantage
from rolltree.credit.backup import backup
from rolltree.credit.fold import expand, fold, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.testing.forests import grown
from rolltree.tree.table import Floats, table
from studies.exact.forest import sample
from studies.exact.measure import measure_all
from studies.exact.problem import solve
from studies.exact.problems import PROBLEMS


@dataclass(frozen=True, slots=True)
class ExactClaim:
    """A statement, the numbers it was held against, and what they say."""

    statement: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    verdict: str


def hiper_variance(trees: int = 8000) -> ExactClaim:
    """HiPER: unbiased and less noisy than flat GAE, with an exact critic and with a wrong one."""
    problem = PROBLEMS["options"]()
    credits = {
        "flat GAE, λ = 1": load_credit("gae", decay=1.0),
        "flat GAE, λ = 0.95": load_credit("gae", decay=0.95),
        "HiPER, λ = 1": load_credit("hiper", whiten=False, segment_decay=1.0),
        "HiPER, λ_segment = 0.95": load_credit("hiper", whiten=False),
        "HiPER, λ_segment = 0": load_credit("hiper", whiten=False, segment_decay=0.0),
    }
    rows: list[tuple[str, ...]] = []
    got = {e: measure_all(credits, problem, group=1, trees=trees, critic=e) for e in (0.0, 0.1)}
    for error, measured in got.items():
        for name, m in measured.items():
            rows.append(
                (name, f"{error}", f"{m.scale:.3f} ± {m.scale_se:.3f}", f"{m.bias:.3f} ± {m.bias_se:.3f}",
                 f"{m.noise:.2f} ± {m.noise_se:.2f}", f"{m.zmax:.1f}")
            )  # fmt: skip
    flat, hier = got[0.0]["flat GAE, λ = 1"], got[0.0]["HiPER, λ = 1"]
    wrong = got[0.1]["HiPER, λ = 1"]
    verdict = (
        f"With an exact critic HiPER is {'unbiased' if hier.unbiased else 'BIASED'} here and its noise is "
        f"{hier.noise / flat.noise:.2f} of flat GAE's at λ = 1. With a critic wrong by 0.1 its largest z is "
        f"{wrong.zmax:.1f}, flat GAE's {got[0.1]['flat GAE, λ = 1'].zmax:.1f}: the saving is bought with the critic."
    )
    header = ("estimator", "critic error", "scale", "bias", "noise", "max z")
    return ExactClaim("HiPER is unbiased and has less variance than flat GAE", header, tuple(rows), verdict)


def sign_flips(draws: int = 40_000, seed: int = 0) -> ExactClaim:
    """MC-GRPO: how often an advantage has another sign than r − E r, for mean, median at G + 1, and mean at G + 1."""
    rng = np.random.default_rng(seed)
    distributions = {
        "0, 1.5, 2 (GSM8K)": lambda n: rng.choice([0.0, 1.5, 2.0], n, p=[0.6, 0.15, 0.25]),
        "Gaussian": lambda n: rng.normal(0, 1, n),
        "heavy outliers": lambda n: rng.normal(0, 1, n) + 20 * (rng.random(n) < 0.05),
        "0 / 1": lambda n: rng.choice([0.0, 1.0], n, p=[0.7, 0.3]),
    }
    means = {"0, 1.5, 2 (GSM8K)": 0.725, "Gaussian": 0.0, "heavy outliers": 1.0, "0 / 1": 0.3}
    rows: list[tuple[str, ...]] = []
    wins: list[str] = []
    for name, distribution in distributions.items():
        for group in (2, 4, 8):
            even, odd = distribution((draws, group)), distribution((draws, group + 1))
            mean, mean_more = _flips(even, even.mean(1), means[name]), _flips(odd, odd.mean(1), means[name])
            # One pivot per group is left out of the update, so flips are counted over the G rows that stay.
            middle = _flips(odd, np.median(odd, axis=1), means[name]) * (group + 1) / group
            rows.append((name, str(group), f"{mean:.1%}", f"{mean_more:.1%}", f"{middle:.1%}"))
            if middle < min(mean, mean_more):
                wins.append(f"{name} at G = {group}")
    verdict = f"The median flips fewer signs than both means for: {'; '.join(wins) or 'none'}. Elsewhere it does not."
    return ExactClaim("a median baseline flips fewer signs in small groups",
                 ("rewards", "G", "mean of G", "mean of G + 1", "median of G + 1"), tuple(rows), verdict)  # fmt: skip


def _flips(reward: Floats, baseline: Floats, truth: float) -> float:
    away = reward - baseline[:, None]
    return float((np.sign(away) * np.sign(reward - truth) < 0).mean())


def leaf_mean_bias(trees: int = 4000, seed: int = 0) -> ExactClaim:
    """Value of the root by leaf mean and by child mean, when the number of forks depends on the action drawn."""
    rows: list[tuple[str, ...]] = []
    worst = {"leaf_mean": 0.0, "child_mean": 0.0}
    for name in ("tree", "tools"):
        problem = PROBLEMS[name]()
        solved = solve(problem)
        for forks in ("flat", "even", "uneven"):
            tab = table(sample(problem, solved, np.random.default_rng(seed), trees=trees, group=8, forks=forks))
            for rule in ("leaf_mean", "child_mean"):
                root = backup(tab, tab.reward, rule)[tab.root] - solved.objective
                se = root.std(ddof=1) / np.sqrt(trees)
                worst[rule] = max(worst[rule], abs(float(root.mean()) / se))
                rows.append((name, forks, rule, f"{solved.objective:.3f}", f"{root.mean():+.4f} ± {se:.4f}"))
    verdict = (
        f"Leaf mean: largest |bias| / error {worst['leaf_mean']:.1f}; child mean: {worst['child_mean']:.1f}. "
        "Leaf mean is off wherever the number of leaves below an action depends on what happened there: forks that "
        "follow the action drawn, and a little where calls end before they fork."
    )
    return ExactClaim("leaf means are biased under uneven forks, child means are not",
                 ("problem", "forks", "backup", "true V(root)", "bias"), tuple(rows), verdict)  # fmt: skip


def two_channels(seed: int = 0) -> ExactClaim:
    """The clipped surrogate from gain and loss against the same with every path written out."""
    rng = np.random.default_rng(seed)
    shape = [[[], [], []], [[[], []], []], []]
    rows: list[tuple[str, ...]] = []
    worst = 0.0
    for terms in ("leaf", "leaf + node", "leaf + node + action"):
        tab = table([grown(shape, rng, id=f"t{i}") for i in range(50)])
        advantage = Advantage(
            leaf=rng.normal(size=len(tab.leaf)),
            node=rng.normal(size=len(tab.nodes)) if "node" in terms else None,
            action=rng.normal(size=tab.actions) if "action" in terms else None,
        )
        weights = leaf_weights(tab, "sequence")
        ratio = np.exp(rng.normal(0, 0.5, tab.actions))
        folded, paths = fold(tab, advantage, weights), expand(tab, advantage, weights)
        two = (folded.gain * np.minimum(ratio, 1.28) + folded.loss * np.maximum(ratio, 0.8)).sum()
        r, a = ratio[paths.index], paths.advantage
        every = (paths.weight[paths.path] * np.minimum(r * a, np.clip(r, 0.8, 1.28) * a)).sum()
        worst = max(worst, abs(float(two - every)))
        rows.append((terms, f"{two:.12f}", f"{every:.12f}", f"{abs(two - every):.1e}"))
    return ExactClaim("two channels per action give the clipped surrogate of all paths exactly",
                 ("terms", "two channels", "every path", "difference"), tuple(rows),
                 f"Equal to {worst:.0e} on 50 random trees with masked, untrained and empty runs.")  # fmt: skip


def mass_balance(
    draws: int = 2000, seed: int = 0, answers: int = 300, right: int = 30, rate: float = 1.0
) -> ExactClaim:
    """BroRL: the sampled update's change of correct mass, term by term, and how often it falls."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1, answers)
    p = np.exp(logits) / np.exp(logits).sum()
    correct = np.arange(answers) < right
    mass = float(p[correct].sum())
    rows: list[tuple[str, ...]] = []
    falls: list[float] = []
    gap = 0.0
    for n in (4, 16, 64, 256):
        terms = np.zeros((draws, 3))
        for i in range(draws):
            seen = np.zeros(answers, np.bool_)
            seen[rng.choice(answers, n, p=p)] = True
            terms[i], exact = _balance(p, correct, seen, rate / n)
            gap = max(gap, abs(float(terms[i].sum()) - exact))
        change = terms.sum(axis=1)
        falls.append(float((change < 0).mean()))
        rows.append((str(n), *(f"{t:+.2e}" for t in n * terms.mean(axis=0)), f"{n * change.mean():+.2e}",
                     f"{falls[-1]:.3f}", f"{(p**2 * (1 - p) ** n).sum():.1e}"))  # fmt: skip
    verdict = (
        f"The three terms add up to the first-order change to {gap:.0e}. Correct mass {mass:.2f}; the chance that it "
        f"falls goes {', '.join(f'{f:.3f}' for f in falls)} as N grows: only the unsampled term can be negative, and "
        "it vanishes."
    )
    header = ("N", "right sampled · N", "wrong sampled · N", "unsampled · N", "sum · N", "P(falls)", "E Σ p² unsampled")
    return ExactClaim("with many rollouts correct mass cannot fall (mass balance)", header, tuple(rows), verdict)


def _balance(p: Floats, correct: np.ndarray, seen: np.ndarray, step: float) -> tuple[list[float], float]:
    # Rewards +1 and -1 on the sampled set; z += step · p (R − S) with S = Σ_sampled R p, the expected-gradient update.
    reward = np.where(seen, np.where(correct, 1.0, -1.0), 0.0)
    shared = float((reward * p).sum())
    q_right, q_wrong = float(p[correct].sum()), float(p[~correct].sum())
    squares = p**2
    right = (1.0 - shared) * q_wrong * float(squares[seen & correct].sum())
    wrong = (shared + 1.0) * q_right * float(squares[seen & ~correct].sum())
    unseen = shared * (
        q_right * float(squares[~seen & ~correct].sum()) - q_wrong * float(squares[~seen & correct].sum())
    )
    moved = p * (reward - shared)
    exact = step * float((p[correct] * (moved[correct] - float(p @ moved))).sum())
    return [step * right, step * wrong, step * unseen], exact


CLAIMS = (hiper_variance, sign_flips, leaf_mean_bias, two_channels, mass_balance)
"""Every checked claim."""
