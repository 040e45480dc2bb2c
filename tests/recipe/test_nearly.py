"""Recipes whose mechanism is a stage, a mask or a chain: each must fail here where its mechanism does not act."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.credit.fold import fold, leaf_weights
from rolltree.filter.calls import FailedCalls
from rolltree.metrics.registry import metric_of
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.shape import masked
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import table


def session(*turns: bool, reward: float = 1.0) -> Tree:
    """A session whose calls failed or not, and an answer."""
    tree = Tree("t", [0], task="t", item="i")
    here = tree.root
    for failed in turns:
        here = tree.extend(here, [1, 2], logp=np.zeros(2, np.float32), status="done")
        here = tree.extend(here, [3], role="env", status="done")
        here.notes["failed"] = failed
    tree.extend(here, [4], logp=np.zeros(1, np.float32), status="done", finish="stop", scores={"reward": reward})
    return tree


@pytest.mark.papers("kat_coder")
def test_kat_coder_learns_the_recovery_and_not_the_failure() -> None:
    parts, tree = load_recipe("kat_coder").build(), session(True, False)
    for shape in parts.shapers:
        shape(tree, 48)
    rows = table([tree])
    folded = fold(rows, parts.credit(rows), leaf_weights(rows, "sequence"))
    gain = folded.gain
    failed, recovered, answer = [n for n in tree if n.role == "policy"]
    at = {n.id: rows.start[i] for i, n in enumerate(rows.nodes)}
    assert not gain[at[failed.id] : at[failed.id] + 2].any()
    assert gain[at[recovered.id] : at[recovered.id] + 2].all()
    assert gain[at[answer.id]] > 0
    assert masked(Rollouts(rows)) == {"rollout/masked": pytest.approx(2 / 5)}
    assert masked(Rollouts(table([session(True, False)]))) == {"rollout/masked": 0.0}
    assert load_recipe("kat_coder", mask=False).build().shapers == ()
    lost = session(True, reward=0.0)
    FailedCalls()(lost, 48)
    assert not parts.credit(table([lost])).leaf.any(), "a session that failed is not imitated"


@pytest.mark.papers("kat_coder", "tti")
@pytest.mark.parametrize("name", ["kat_coder", "tti"])
def test_imitation_is_a_mean_over_what_is_imitated(name: str) -> None:
    parts, won, lost, half = (load_recipe(name).build(), *(session(False, reward=r) for r in (1.0, 0.0, 0.4)))
    alone, beside = table([won]), table([session(False), lost, half])
    gains: list[float] = []
    for rows in (alone, beside):
        made = parts.credit(rows)
        folded = fold(rows, made, leaf_weights(rows, "sequence", counted=made.counted))
        assert not folded.loss.any()
        gains.append(float(folded.gain.sum()))
    assert gains == pytest.approx([1.0, 1.0]), "failures and halves do not thin it out"


@pytest.mark.papers("cog_rethinker")
def test_rescued_answers_are_imitated_and_stay_out_of_the_groups_mean() -> None:
    parts = load_recipe("cog_rethinker", weight=0.25).build()
    tree = Tree("t", [0], task="t", item="i")
    for reward, rescued in ((1.0, 0), (0.0, 0), (1.0, 1), (0.0, 1)):
        scores = {"reward": reward} | ({"rescued": 1.0} if rescued else {})
        tree.extend(tree.root, [1], logp=np.zeros(1, np.float32), status="done", finish="stop", scores=scores)
    made = parts.credit(table([tree]))
    half = 0.5**0.5
    assert made.leaf == pytest.approx([half, -half, 0.25, 0.0], abs=1e-5)
    assert made.counted is not None
    assert list(made.counted) == [True, True, True, False]
    dead = Tree("u", [0], task="t", item="u")
    for rescued in (0, 0, 1, 1):
        scores = {"reward": float(rescued)} | ({"rescued": 1.0} if rescued else {})
        dead.extend(dead.root, [1], logp=np.zeros(1, np.float32), status="done", finish="stop", scores=scores)
    made = parts.credit(table([tree, dead]))
    assert made.counted is not None
    assert list(made.counted[4:]) == [False, False, True, True], "what a rescued prompt failed thins nothing out"


def _falls(rollouts: int, seed: int, trials: int = 200, answers: int = 300, right: int = 30) -> float:
    """Share of steps z ← z + (0.1 / N) Σ r (e_a − p), r = ±1, in which the probability of a right answer falls."""
    rng, count = np.random.default_rng([31, seed]), 0
    for _ in range(trials):
        z = rng.normal(0, 2, answers)
        p = np.exp(z - z.max())
        p /= p.sum()
        signed = rng.multinomial(rollouts, p) * np.where(np.arange(answers) < right, 1.0, -1.0)
        new = np.exp(z + 0.1 / rollouts * (signed - p * signed.sum()))
        count += new[:right].sum() / new.sum() < p[:right].sum()
    return count / trials


@pytest.mark.papers("brorl")
def test_brorl_is_wide_and_what_it_counts_rests_at_the_usual_width() -> None:
    recipe = load_recipe("brorl")
    assert recipe.build().strategy.n == 128
    assert recipe.card.counter is not None
    assert (recipe.card.counter.metric, recipe.card.counter.rest) == ("rollout/group_size", 8.0)
    assert metric_of(recipe.card.counter.metric).name == "rollout/group_size"
    few, many = (np.mean([_falls(n, seed) for seed in range(3)]) for n in (4, 64))
    assert few > 0.05
    assert many < few / 2
