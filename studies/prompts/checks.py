"""Each control's claim on simulated prompts: a seed in, the method's number and what it is held against out."""

from __future__ import annotations

import numpy as np

from rolltree.control.beliefs import Beliefs
from rolltree.control.history import History
from rolltree.control.methods.dars import Dars, Schedule
from rolltree.control.methods.dart import Dart
from rolltree.control.methods.dots import Dots
from rolltree.control.methods.drive import Drive
from rolltree.control.methods.gdro import PromptGdro, Reading, RolloutGdro
from rolltree.control.methods.seele import Seele
from rolltree.control.methods.stagent import Stagent
from rolltree.control.methods.v05 import V05, shrinkage
from rolltree.control.methods.vade import Vade
from rolltree.control.methods.xrpo import Xrpo
from rolltree.control.plan import Control, Uniform
from rolltree.control.shuffled import Shuffled
from rolltree.filter.methods.grpo_roc import Cleanest
from rolltree.lab.claim import Measured
from rolltree.tree import Tree
from studies.prompts.world import Floats, Log, PromptWorld, grouped, index, mass, run, sigmoid


def effective_share(control: Control, world: PromptWorld, steps: int = 50, skip: int = 10) -> float:
    """Share of groups with variance, after the first sweep of the pool."""
    logs = run(control, world, steps)[skip:]
    return sum(log.effective for log in logs) / sum(log.groups for log in logs)


def vade(seed: int) -> Measured:
    """Share of groups with variance: VADE against uniform choice from the same pool of 400."""
    value = effective_share(Vade(400), PromptWorld(400, seed=seed))
    return Measured(value, effective_share(Shuffled(400), PromptWorld(400, seed=seed)))


def stagent(seed: int) -> Measured:
    """Share of groups with variance: mean × variance against uniform choice from the same pool of 400."""
    value = effective_share(Stagent(400, rollouts=8), PromptWorld(400, seed=seed))
    return Measured(value, effective_share(Shuffled(400), PromptWorld(400, seed=seed)))


def hardest_quarter(control: Control, seed: int, rollouts: int) -> float:
    """True pass rate of the prompts that were hardest at the start, once so many rollouts were drawn."""
    world = PromptWorld(200, seed=seed, mean=-1.5, spread=2.0, gain=0.1)
    history, state, number, spent = History(), control.start(), 0, 0
    while spent < rollouts:
        number += 1
        (log,) = run(control, world, 1, prompts=16, width=8, state=state, history=history, first=number)
        spent += log.rollouts
    return float(world.rates[np.argsort(world.begun)[:50]].mean())


def drive(seed: int) -> Measured:
    """The hardest quarter after 40,000 rollouts: broad, then hard, against the broad stage alone."""
    value = hardest_quarter(Drive(200, (72, 50, 25), broad=60, each=8, hard=64), seed, 40_000)
    return Measured(value, hardest_quarter(Shuffled(200), seed, 40_000))


def dart(seed: int) -> Measured:
    """The hardest quarter after 40,000 rollouts: DART's widths and rescues against the same width everywhere."""
    return Measured(hardest_quarter(Dart(), seed, 40_000), hardest_quarter(Shuffled(200), seed, 40_000))


def hard_share(schedule: Schedule | None, seed: int, width: int = 8) -> tuple[float, float]:
    """Share of Σ|A| on prompts with a pass rate below 1/4, and rollouts per prompt."""
    world = PromptWorld(2000, seed=seed, spread=2.0, gain=0.0, drift=0.0)
    (log,) = run(Uniform() if schedule is None else Dars(schedule), world, 1, prompts=2000, width=width)
    masses = {index(g[0].order): mass(g) for g in grouped(log.delivered).values()}
    hard = sum(m for i, m in masses.items() if world.rates[i] < 0.25)
    return hard / sum(masses.values()), log.rollouts / 2000


def dars(seed: int) -> Measured:
    """Σ|A| on hard prompts: even DARS against a uniform width of as many rollouts."""
    value, used = hard_share("even", seed)
    return Measured(value, hard_share(None, seed, round(used))[0])


def mean_error(control: Control, world: PromptWorld, width: int = 8) -> tuple[float, float, int]:
    """Mean squared error of the group means, groups with variance, and rollouts, of one step over all prompts."""
    (log,) = run(control, world, 1, prompts=world.count, width=width)
    errors: list[float] = []
    for group in grouped(log.delivered).values():
        rewards = [r for d in group for r in d.rewards]
        errors.append((float(np.mean(rewards)) - float(world.rates[index(group[0].order)])) ** 2)
    return float(np.mean(errors)), float(log.effective), log.rollouts


def bandit(seed: int) -> PromptWorld:
    """200 prompts that stand still."""
    return PromptWorld(200, seed=seed, spread=2.5, gain=0.0, drift=0.0)


def xrpo(seed: int) -> Measured:
    """Error of group means: XRPO's widths against uniform ones, averaged over ten draws."""
    worlds = [bandit(100 * seed + k) for k in range(10)]
    value = np.mean([mean_error(Xrpo(examples=0), w)[0] for w in worlds])
    again = [bandit(100 * seed + k) for k in range(10)]
    return Measured(float(value), float(np.mean([mean_error(Uniform(), w)[0] for w in again])))


def skewed(seed: int) -> PromptWorld:
    """Three difficulties at 90, 9 and 1 %."""
    logits = np.concatenate([np.full(270, 1.0), np.full(27, -1.0), np.full(3, -2.5)])
    return PromptWorld(seed=seed, logits=np.random.default_rng([5, seed]).permutation(logits), gain=0.05)


def worst_bin(control: Control, seed: int, steps: int = 100) -> float:
    """Pass rate of the rarest, hardest prompts after training."""
    world = skewed(seed)
    hardest = np.flatnonzero(world.logits < -2)
    run(control, world, steps)
    return float(world.rates[hardest].mean())


def prompt_gdro(seed: int) -> Measured:
    """The worst bin after 100 steps: Prompt-GDRO against uniform weights."""
    return Measured(worst_bin(PromptGdro(), seed), worst_bin(Uniform(), seed))


def noise(logs: list[Log], world: PromptWorld) -> float:
    """Mean over prompts of p(1−p)/n: the variance of their group means."""
    out: list[float] = []
    for log in logs:
        for group in grouped(log.delivered).values():
            p = float(world.rates[index(group[0].order)])
            out.append(p * (1 - p) / max(sum(d.n for d in group), 1))
    return float(np.mean(out))


def group_noise(control: Control, world: PromptWorld, steps: int = 90, last: int = 30) -> float:
    """The variance of group means once a control has learned; the world must stand still."""
    return noise(run(control, world, steps)[-last:], world)


def rollout_gdro(seed: int, reading: Reading = "paper") -> Measured:
    """The variance of group means: Rollout-GDRO's widths against uniform ones."""
    value = group_noise(RolloutGdro(reading=reading), bandit(seed))
    return Measured(value, group_noise(Uniform(), bandit(seed)))


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


def predicted(seed: int, steps: int = 24, references: int = 64) -> tuple[float, float]:
    """Correlation with the true pass rates: of DOTS's predictions, and of each prompt's last seen rate (else 1/2)."""
    world, control, history = topical(seed), Dots(300, references=references), History(window=8)
    state = control.start()
    found: list[tuple[float, float]] = []
    for number in range(1, steps + 1):
        run(control, world, 1, prompts=32, state=state, history=history, first=number)
        ids = [f"p{i}" for i in range(world.count)]
        guess = [state.predicted[uid] for uid in ids]
        last = [0.5 if (rate := history.rate(uid)) is None else rate for uid in ids]
        found.append((_correlation(guess, world.rates), _correlation(last, world.rates)))
    ours, seen = np.mean(found, 0)
    return float(ours), float(seen)


def dots(seed: int) -> Measured:
    """Attention over references against last seen rates."""
    return Measured(*predicted(seed))


PRIORS = ("right", "off by 0.1", "half of them random", "random", "always 0.9")


def baseline_error(prior: str, seed: int, count: int = 400) -> tuple[float, float, float]:
    """Mean squared error of V0.5's baseline, of its shrinkage alone at 4 rollouts, and rollouts per prompt."""
    rng = np.random.default_rng([13, seed])
    world = PromptWorld(count, seed=seed, mean=0.0, spread=1.5, gain=0.0, drift=0.0)
    guess = _prior(prior, world.rates, rng)
    errors: list[tuple[float, float]] = []
    control, state = V05(), Beliefs()
    state.held = {f"p{i}": [200 * v - 1, 199 - 200 * v, 0.0] for i, v in enumerate(guess)}
    (log,) = run(control, world, 1, prompts=count, state=state)
    for group in grouped(log.delivered).values():
        i, rewards = index(group[0].order), [r for d in group for r in d.rewards]
        errors.append(tuple((_shrunk(guess[i], r) - world.rates[i]) ** 2 for r in (rewards, rewards[: control.least])))
    ours, alone = np.mean(errors, 0)
    return float(ours), float(alone), log.rollouts / count


def v05(seed: int) -> Measured:
    """Baseline error with a prior half of which is random, against group means of as many rollouts."""
    ours, _, used = baseline_error("half of them random", seed)
    world = PromptWorld(400, seed=seed, mean=0.0, spread=1.5)
    return Measured(ours, float((world.rates * (1 - world.rates)).mean() / used))


def hint_rounds(control: Control, seed: int, visits: int = 3) -> list[list[float]]:
    """True accuracies of the rollouts of each round of the last visit."""
    world = PromptWorld(60, seed=seed, mean=-4.0, spread=2.0, gain=0.0, drift=0.05)
    log = run(control, world, visits, prompts=60, width=32)[-1]
    world_at = world.logits  # within a visit nothing moves; the drift after it is small
    rounds: list[list[float]] = []
    for group in grouped(log.delivered).values():
        for k, d in enumerate(group):
            if k == len(rounds):
                rounds.append([])
            shown = 0.0 if d.order.brief is None else len(d.order.brief.text) / 10
            rounds[k].append(float(sigmoid(world_at[index(d.order)] + world.per_hint * shown)))
    return rounds


def seele(seed: int) -> Measured:
    """a(1−a) over the rollouts of the third visit, against half of the answer for everybody."""
    from studies.prompts.oracles import FixedHint

    return Measured(_spread(hint_rounds(Seele(), seed)), _spread(hint_rounds(FixedHint(0.5), seed)))


def kept_flaws(seed: int, rate: float = 0.4, groups: int = 200) -> tuple[float, float, float, float]:
    """Mean penalty of right rollouts kept and of all, share of right ones kept and of all; penalties Beta(2, 3)."""
    rng = np.random.default_rng([17, seed])
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
    both = [np.array(x) for x in (kept, every)]
    flaws = [float(x[x[:, 0] > 0, 1].mean()) for x in both]
    return flaws[0], flaws[1], float(both[0][:, 0].mean()), float(both[1][:, 0].mean())


def grpo_roc(seed: int) -> Measured:
    """Penalty of the right rollouts that teach, against keeping as many at random."""
    ours, plain, _, _ = kept_flaws(seed)
    return Measured(ours, plain)


def guide(seed: int) -> Measured:
    """Unhinted pass rate after training on one hard prompt: Guide against GRPO with twice the group."""
    from studies.prompts.guided import train

    return Measured(train("guide", seed)[0], train("grpo", seed)[0])


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
