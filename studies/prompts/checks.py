"""Each control's claim on simulated prompts: a seed in, the method's number and what it is held against out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np

from rolltree.control.history import Beliefs, History
from rolltree.control.plan import Control, Plan, Step, Uniform
from rolltree.control.pool import Shuffled
from rolltree.tree import Tree
from rolltree_papers.dars import Dars, Schedule
from rolltree_papers.dart import RESCUE, Dart
from rolltree_papers.dots import Dots
from rolltree_papers.drive import Drive
from rolltree_papers.gdro import PromptGdro, Reading, RolloutGdro
from rolltree_papers.grpo_roc import Cleanest
from rolltree_papers.seele import Seele
from rolltree_papers.stagent import Stagent
from rolltree_papers.v05 import V05, shrinkage
from rolltree_papers.vade import Vade
from rolltree_papers.xrpo import Xrpo
from studies.lab.claim import Measured
from studies.prompts.world import Floats, Log, PromptWorld, grouped, index, mass, mixed, run, sigmoid


def effective_share(control: Control, world: PromptWorld, steps: int = 50, skip: int = 10) -> float:
    """Share of groups with variance, after the first sweep of the pool."""
    return varied(run(control, world, steps)[skip:])


def varied(logs: Sequence[Log]) -> float:
    """Share of groups with variance."""
    return sum(log.effective for log in logs) / sum(log.groups for log in logs)


def chosen(control: Control, seed: int, steps: int = 50, skip: int = 10) -> list[Log]:
    """What a control chose from a pool of 400, after the first sweep of the pool."""
    return run(control, PromptWorld(400, seed=seed), steps)[skip:]


def visits(logs: Sequence[Log]) -> Counter[int]:
    """How often each prompt was trained."""
    return Counter(index(g[0].order) for log in logs for g in grouped(log.delivered).values())


def favoured(ours: Sequence[Log], even: Sequence[Log]) -> dict[str, float]:
    """Visits that no prompt gets where all are chosen alike: what is above the most visited one there."""
    most = max(visits(even).values())
    return {"visits beyond the most by uniform choice": float(sum(max(n - most, 0) for n in visits(ours).values()))}


def moved(logs: Sequence[Log], width: int = 8) -> int:
    """Rollouts that groups have above this width: what others lack where a step costs as much."""
    sizes = (sum(d.n for d in g) for log in logs for g in grouped(log.delivered).values())
    return sum(max(size - width, 0) for size in sizes)


def vade(seed: int) -> Measured:
    """Share of groups with variance: VADE against uniform choice from the same pool of 400."""
    ours, even = chosen(Vade(400), seed), chosen(Shuffled(400), seed)
    return Measured(varied(ours), varied(even), acted=favoured(ours, even))


def yielded(logs: Sequence[Log]) -> float:
    """Groups with variance per 1,000 rollouts drawn, measuring ones included."""
    return 1000 * sum(log.effective for log in logs) / sum(log.rollouts for log in logs)


def stagent(seed: int) -> Measured:
    """Groups with variance per 1,000 rollouts, those that measure counted: mean × variance against uniform choice from
    the same pool of 400."""
    ours, even = chosen(Stagent(400, rollouts=8), seed), chosen(Shuffled(400), seed)
    shares = ([0.0, 1.0], [varied(ours), varied(even)])
    return Measured(yielded(ours), yielded(even), {"share of groups with variance, by arm": shares},
                    favoured(ours, even))  # fmt: skip


def until(control: Control, world: PromptWorld, rollouts: int, width: int = 8) -> list[Log]:
    """Steps of 16 prompts until so many rollouts are drawn."""
    history, state, spent, logs = History(), control.start(), 0, list[Log]()
    while spent < rollouts:
        logs += run(control, world, 1, prompts=16, width=width, state=state, history=history, first=len(logs) + 1)
        spent += logs[-1].rollouts
    return logs


def mostly_hard(seed: int) -> PromptWorld:
    """200 prompts, of which half are solved less than one time in five."""
    return PromptWorld(200, seed=seed, mean=-1.5, spread=2.0, gain=0.1)


def hardest_quarter(world: PromptWorld) -> float:
    """True pass rate of the 50 prompts that were hardest at the start."""
    return float(world.rates[np.argsort(world.begun)[:50]].mean())


def drive(seed: int) -> Measured:
    """All prompts after 40,000 rollouts: broad, then hard, against the broad stage alone; the curve has what was bought
    with it, the hardest quarter."""
    ours, plain = mostly_hard(seed), mostly_hard(seed)
    logs = until(Drive(200, (72, 50, 25), broad=60, each=8, hard=64), ours, 40_000)
    until(Shuffled(200), plain, 40_000)
    # Only the sets of hard prompts are asked with a width of their own; measuring rollouts are not in a group.
    groups = [g for log in logs for g in grouped(log.delivered).values() if g[0].order.width is not None]
    taught = {"groups of hard sets with variance": float(sum(mixed(g) for g in groups))}
    hard = ([0.0, 1.0], [hardest_quarter(ours), hardest_quarter(plain)])
    return Measured(float(ours.rates.mean()), float(plain.rates.mean()), {"hardest quarter, by arm": hard}, taught)


def dart(seed: int) -> Measured:
    """The hardest quarter after 40,000 rollouts: DART's widths and rescues against the same width everywhere."""
    ours, plain = mostly_hard(seed), mostly_hard(seed)
    logs = until(Dart(), ours, 40_000)
    until(Shuffled(200), plain, 40_000)
    served = [d for log in logs for d in log.delivered]
    rescued = sum(d.order.arm == RESCUE for d in served)
    saved = sum(8 - d.n for d in served if d.order.arm != RESCUE)
    acted = {"rollouts saved": float(saved), "groups rescued": float(rescued)}
    return Measured(hardest_quarter(ours), hardest_quarter(plain), acted=acted)


def hard_share(schedule: Schedule | None, seed: int, width: int = 8) -> tuple[float, float]:
    """Share of Σ|A| on prompts with a pass rate below 1/4, and rollouts per prompt."""
    world = PromptWorld(2000, seed=seed, spread=2.0, gain=0.0, drift=0.0)
    (log,) = run(Uniform() if schedule is None else Dars(schedule), world, 1, prompts=2000, width=width)
    masses = {index(g[0].order): mass(g) for g in grouped(log.delivered).values()}
    hard = sum(m for i, m in masses.items() if world.rates[i] < 0.25)
    return hard / sum(masses.values()), log.rollouts / 2000


def solvable(world: PromptWorld, tries: int = 128) -> float:
    """Mean pass@k of all prompts, k the paper's 128."""
    return float((1 - (1 - world.rates) ** tries).mean())


def dars(seed: int) -> Measured:
    """pass@128 of all prompts after 40,000 rollouts: even DARS against a uniform width of as many rollouts a step.

    At the start some 31 % of single answers are right and 70 % of the prompts are solved within 128. The curves have
    pass@1 of all prompts, and of those that began below 1/4.
    """
    ours, plain = (PromptWorld(200, seed=seed, mean=-2.5, spread=4.5, gain=0.5) for _ in range(2))
    logs = until(Dars(), ours, 40_000)
    until(Uniform(), plain, 40_000, round(sum(log.rollouts for log in logs) / (16 * len(logs))))
    hard = ours.begun < np.log(1 / 3)
    curves = {
        "pass@1, by arm": ([0.0, 1.0], [float(w.rates.mean()) for w in (ours, plain)]),
        "pass@1 of hard prompts, by arm": ([0.0, 1.0], [float(w.rates[hard].mean()) for w in (ours, plain)]),
    }
    acted = {"rollouts of groups wider than others of their step": float(sum(widened(log) for log in logs))}
    return Measured(solvable(ours), solvable(plain), curves, acted)


def widened(log: Log) -> int:
    """Rollouts that groups of a step have above its narrowest."""
    sizes = [sum(d.n for d in group) for group in grouped(log.delivered).values()]
    return sum(sizes) - len(sizes) * min(sizes)


def mean_error(control: Control, world: PromptWorld, width: int = 8) -> tuple[float, float, int]:
    """Of one step over all prompts: mean squared error of the group means, groups with variance, and rollouts of
    groups above the width."""
    (log,) = run(control, world, 1, prompts=world.count, width=width)
    errors: list[float] = []
    for group in grouped(log.delivered).values():
        rewards = [r for d in group for r in d.rewards]
        errors.append((float(np.mean(rewards)) - float(world.rates[index(group[0].order)])) ** 2)
    return float(np.mean(errors)), float(log.effective), moved([log], width)


def bandit(seed: int) -> PromptWorld:
    """200 prompts that stand still."""
    return PromptWorld(200, seed=seed, spread=2.5, gain=0.0, drift=0.0)


def xrpo(seed: int) -> Measured:
    """Error of group means: XRPO's widths against uniform ones, averaged over ten draws."""
    ours = [mean_error(Xrpo(examples=0), bandit(100 * seed + k)) for k in range(10)]
    even = [mean_error(Uniform(), bandit(100 * seed + k)) for k in range(10)]
    value, plain = (float(np.mean([error for error, _, _ in draws])) for draws in (ours, even))
    return Measured(value, plain, acted={"rollouts moved to other prompts": float(sum(n for _, _, n in ours))})


def skewed(seed: int) -> PromptWorld:
    """Three difficulties at 90, 9 and 1 %."""
    logits = np.concatenate([np.full(270, 1.0), np.full(27, -1.0), np.full(3, -2.5)])
    return PromptWorld(seed=seed, logits=np.random.default_rng([5, seed]).permutation(logits), gain=0.05)


def worst_bin(control: Control, seed: int, steps: int = 100) -> tuple[float, int]:
    """Pass rate of the rarest, hardest prompts after training, and prompts that weighed more than others of a step."""
    world, weighed = skewed(seed), 0
    hardest = np.flatnonzero(world.logits < -2)
    for log in run(control, world, steps):
        weights = [g[0].order.marks.get("prompt_weight", 1.0) for g in grouped(log.delivered).values()]
        weighed += sum(weight > min(weights) for weight in weights)
    return float(world.rates[hardest].mean()), weighed


@dataclass(frozen=True, slots=True)
class MeanOne:
    """A control whose prompt weights are divided by their mean over the step, so that none learns at a higher rate."""

    inner: Control
    needs: ClassVar[frozenset[str]] = frozenset()

    def start(self) -> object:
        """The control's own."""
        return self.inner.start()

    def plan(self, step: Step, state: object) -> Plan:
        """The control's rounds with other weights."""
        plan, answer = self.inner.plan(step, state), None
        while True:
            try:
                orders = next(plan) if answer is None else plan.send(answer)
            except StopIteration:
                return
            assert isinstance(orders, Sequence)
            weights = [order.marks.get("prompt_weight", 1.0) for order in orders]
            answer = yield [
                replace(order, marks={**order.marks, "prompt_weight": weight / float(np.mean(weights))})
                for order, weight in zip(orders, weights, strict=True)
            ]


def prompt_gdro(seed: int) -> Measured:
    """The worst bin after 100 steps: Prompt-GDRO's weights, of mean 1 in every step, against uniform ones."""
    value, weighed = worst_bin(MeanOne(PromptGdro()), seed)
    return Measured(value, worst_bin(Uniform(), seed)[0], acted={"prompts that weighed more": float(weighed)})


def noise(logs: list[Log], world: PromptWorld) -> float:
    """Mean over prompts of p(1−p)/n: the variance of their group means."""
    out: list[float] = []
    for log in logs:
        for group in grouped(log.delivered).values():
            p = float(world.rates[index(group[0].order)])
            out.append(p * (1 - p) / max(sum(d.n for d in group), 1))
    return float(np.mean(out))


def group_noise(control: Control, world: PromptWorld, steps: int = 90, last: int = 30) -> tuple[float, int]:
    """The variance of group means once a control has learned, and rollouts of groups above 8 then; the world must
    stand still."""
    logs = run(control, world, steps)[-last:]
    return noise(logs, world), moved(logs)


def rollout_gdro(seed: int, reading: Reading = "paper") -> Measured:
    """The variance of group means: Rollout-GDRO's widths against uniform ones."""
    value, changed = group_noise(RolloutGdro(reading=reading), bandit(seed))
    plain = group_noise(Uniform(), bandit(seed))[0]
    return Measured(value, plain, acted={"rollouts moved to other prompts": float(changed)})


def topical(seed: int, count: int = 300) -> PromptWorld:
    """Prompts whose difficulty follows from the words they are made of."""
    rng = np.random.default_rng([7, seed])
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = ["".join(rng.choice(letters, 5)) for _ in range(12)]
    effect = rng.normal(0, 2, 12)
    chosen = [rng.choice(12, 2, replace=False) for _ in range(count)]
    texts = [f"{words[a]} {words[b]} {rng.integers(1000)}" for a, b in chosen]
    return PromptWorld(
        seed=seed, logits=np.array([effect[c].sum() for c in chosen]), texts=texts, gain=0.05, drift=0.05
    )


def predicted(seed: int, steps: int = 24, references: int = 64) -> tuple[float, float, int]:
    """Correlation with the true pass rates: of DOTS's predictions, and of each prompt's last seen rate (else 1/2); and
    predictions off 1/2 for prompts that were never seen."""
    world, control, history = topical(seed), Dots(300, references=references), History(window=8)
    state, foretold = control.start(), 0
    found: list[tuple[float, float]] = []
    for number in range(1, steps + 1):
        run(control, world, 1, prompts=32, state=state, history=history, first=number)
        ids = [f"p{i}" for i in range(world.count)]
        guess = [state.predicted[uid] for uid in ids]
        rates = [history.rate(uid) for uid in ids]
        last = [0.5 if rate is None else rate for rate in rates]
        foretold += sum(rate is None and p != 0.5 for rate, p in zip(rates, guess, strict=True))
        found.append((_correlation(guess, world.rates), _correlation(last, world.rates)))
    ours, seen = np.mean(found, 0)
    return float(ours), float(seen), foretold


def dots(seed: int) -> Measured:
    """Attention over references against last seen rates."""
    ours, seen, foretold = predicted(seed)
    return Measured(ours, seen, acted={"prompts foretold before they were seen": float(foretold)})


PRIORS = ("right", "off by 0.1", "half of them random", "random", "always 0.9")


def baseline_error(prior: str, seed: int, count: int = 400) -> tuple[float, float, float, int]:
    """Mean squared error of V0.5's baseline, of its shrinkage alone at 4 rollouts, rollouts per prompt, and baselines
    that are a point or more off their group's mean."""
    rng = np.random.default_rng([13, seed])
    world = PromptWorld(count, seed=seed, mean=0.0, spread=1.5, gain=0.0, drift=0.0)
    guess = _prior(prior, world.rates, rng)
    errors, off = list[tuple[float, float]](), 0
    control, state = V05(), Beliefs()
    state.held = {f"p{i}": [200 * v - 1, 199 - 200 * v, 0.0] for i, v in enumerate(guess)}
    (log,) = run(control, world, 1, prompts=count, state=state)
    for group in grouped(log.delivered).values():
        i, rewards = index(group[0].order), [r for d in group for r in d.rewards]
        errors.append(tuple((_shrunk(guess[i], r) - world.rates[i]) ** 2 for r in (rewards, rewards[: control.least])))
        off += abs(_shrunk(guess[i], rewards) - float(np.mean(rewards))) >= 0.01
    ours, alone = np.mean(errors, 0)
    return float(ours), float(alone), log.rollouts / count, off


def v05(seed: int) -> Measured:
    """Baseline error with a prior half of which is random, against group means of as many rollouts."""
    ours, _, used, off = baseline_error("half of them random", seed)
    world = PromptWorld(400, seed=seed, mean=0.0, spread=1.5)
    acted = {"baselines moved by the prior": float(off), "rollouts added to a prompt": used - V05().least}
    return Measured(ours, float((world.rates * (1 - world.rates)).mean() / used), acted=acted)


def hint_rounds(control: Control, seed: int, visits: int = 3) -> tuple[list[list[float]], int]:
    """True accuracies of the rollouts of each round of the last visit, and how often a hint changed between rounds."""
    world = PromptWorld(60, seed=seed, mean=-4.0, spread=2.0, gain=0.0, drift=0.05)
    log = run(control, world, visits, prompts=60, width=32)[-1]
    world_at = world.logits  # within a visit nothing moves; the drift after it is small
    rounds, changed = list[list[float]](), 0
    for group in grouped(log.delivered).values():
        hints = ["" if d.order.brief is None else d.order.brief.text for d in group]
        changed += sum(a != b for a, b in pairwise(hints))
        for k, d in enumerate(group):
            if k == len(rounds):
                rounds.append([])
            shown = 0.0 if d.order.brief is None else len(d.order.brief.text) / 10
            rounds[k].append(float(sigmoid(world_at[index(d.order)] + world.per_hint * shown)))
    return rounds, changed


def seele(seed: int) -> Measured:
    """a(1−a) over the rollouts of the third visit, against half of the answer for everybody."""
    from studies.prompts.oracles import FixedHint

    ours, changed = hint_rounds(Seele(), seed)
    half = _spread(hint_rounds(FixedHint(0.5), seed)[0])
    return Measured(_spread(ours), half, acted={"hints changed": float(changed)})


def kept_flaws(seed: int, rate: float = 0.4, groups: int = 200) -> tuple[float, float, float, float, int]:
    """Mean penalty of right rollouts kept and of all, share of right ones kept and of all; penalties Beta(2, 3). And
    right rollouts left out though they came among the first as many as were kept."""
    rng, passed = np.random.default_rng([17, seed]), 0
    kept: list[tuple[float, float]] = []
    every: list[tuple[float, float]] = []
    for g in range(groups):
        tree = Tree(f"t{g}", [0])
        for _ in range(32):
            right, penalty = float(rng.random() < rate), float(rng.beta(2, 3))
            tree.extend(0, [1], status="done", scores={"reward": right, "format": 1 - penalty})
        if len({leaf.scores["reward"] for leaf in tree.leaves()}) == 1:
            continue
        Cleanest(16)(tree, 1)
        rows = [(leaf.scores["reward"], 1 - leaf.scores["format"], leaf.usage) for leaf in tree.leaves()]
        every += [(r, f) for r, f, _ in rows]
        kept += [(r, f) for r, f, usage in rows if not usage]
        right = [not leaf.usage for leaf in sorted(tree.leaves(), key=lambda n: n.id) if leaf.scores["reward"]]
        passed += right[: sum(right)].count(False)
    both = [np.array(x) for x in (kept, every)]
    flaws = [float(x[x[:, 0] > 0, 1].mean()) for x in both]
    return flaws[0], flaws[1], float(both[0][:, 0].mean()), float(both[1][:, 0].mean()), passed


def guide(seed: int) -> Measured:
    """Unhinted pass rate after training on one hard prompt: Guide against GRPO with twice the group."""
    from studies.prompts.guided import train

    value, _, guided = train("guide", seed)
    return Measured(value, train("grpo", seed)[0], acted={"steps guided": float(guided)})


def _spread(rounds: list[list[float]]) -> float:
    values = np.array([a for r in rounds for a in r])
    return float((values * (1 - values)).mean())


def _correlation(guess: list[float], truth: Floats) -> float:
    x = np.asarray(guess)
    return float(np.corrcoef(x, truth)[0, 1]) if x.std() > 0 else 0.0


def _shrunk(prior: float, rewards: list[float]) -> float:
    mean = float(np.mean(rewards))
    w = shrinkage(float(prior), mean, len(rewards))
    return w * float(prior) + (1 - w) * mean


def _prior(kind: str, rates: Floats, rng: np.random.Generator) -> Floats:
    random = rng.uniform(0.02, 0.98, len(rates))
    made = {
        "right": rates,
        "off by 0.1": rates + rng.choice([-0.1, 0.1], len(rates)),
        "half of them random": np.where(rng.random(len(rates)) < 0.5, rates, random),
        "random": random,
        "always 0.9": np.full(len(rates), 0.9),
    }[kind]
    return np.clip(made, 0.02, 0.98)
