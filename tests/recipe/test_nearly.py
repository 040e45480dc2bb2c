"""Recipes whose mechanism is a stage, a mask or a chain: each must fail here where its mechanism does not act."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.control.history import History
from rolltree.control.order import ControlError, Delivery, Order
from rolltree.credit.fold import fold, leaf_weights
from rolltree.filter.calls import FailedCalls
from rolltree.metrics.registry import metric_of
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.shape import masked
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree.tree.table import table
from rolltree_papers.cog_rethinker import CogRethinker
from rolltree_papers.drive import Drive
from rolltree_papers.stagent import Stagent, mean_times_variance
from studies.prompts.world import PromptWorld, run


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


def test_cog_rethinker_asks_only_the_dead_and_stops_where_they_live() -> None:
    world = PromptWorld(logits=np.array([9.0, -3.0, -40.0]), drift=0.0, per_hint=50.0)
    control = CogRethinker(decompose="0123", reflect="{wrong}", examples=0)
    state = control.start()
    (log,) = run(control, world, 1, prompts=3, width=6, state=state)
    arms = [(d.order.prompt.uid, d.order.arm) for d in log.delivered]
    assert [arm for uid, arm in arms if uid == "p0"] == ["plain"]
    assert [arm for uid, arm in arms if uid == "p2"] == ["plain", "decompose", "reflect"]
    rescues = [d.order for d in log.delivered if d.order.arm != "plain"]
    assert all(o.brief is not None and o.brief.hides and o.leaf_marks == {"rescued": 1.0} for o in rescues)
    assert "p0" in state.solved.solved
    with pytest.raises(ControlError, match="no place for answers"):
        CogRethinker(reflect="again")


def test_cog_rethinker_shows_reflections_that_came_out_right() -> None:
    class Reflecting(PromptWorld):
        def rate(self, order: Order) -> float:
            return float(order.arm == "reflect")

    control = CogRethinker(decompose="", example="[{prompt}|{answer}]")
    state = control.start()
    logs = run(control, Reflecting(logits=np.array([0.0, 0.0])), 2, prompts=1, width=2, state=state)
    first, second = ([d.order for d in log.delivered if d.order.arm == "reflect"] for log in logs)
    texts = [order.brief.text for order in (*first, *second) if order.brief is not None]
    assert "[" not in texts[0], "nothing was rewritten yet"
    assert texts[1].startswith("[prompt 0\n0123456789|0123456789]"), (
        "the prompt, its wrong answers, and what came of it"
    )


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


def test_drive_keeps_the_hardest_and_gives_them_more_rollouts() -> None:
    world = PromptWorld(logits=np.linspace(-4, 4, 20), drift=0.0, gain=0.0)
    control = Drive(20, (8, 4), broad=2, each=3, hard=24, probes=200)
    state, history, asked = control.start(), History(), []
    for number in range(1, 10):
        (log,) = run(control, world, 1, prompts=6, width=4, state=state, history=history, first=number)
        trained = [d.order for d in log.delivered if d.order.for_training]
        asked.append(({int(o.prompt.uid[1:]) for o in trained}, {o.width for o in trained}, log.rollouts))
        assert number in (3, 6) or all(d.order.for_training for d in log.delivered)
    assert all(widths == {None} for _, widths, _ in asked[:2])
    assert all(widths == {24} for _, widths, _ in asked[2:])
    assert set().union(*(uids for uids, _, _ in asked[2:5])) <= set(range(9)), "sampling may swap neighbours"
    assert len(state.hard) == 4
    assert {int(uid[1:]) for uid in state.hard} <= set(range(6))
    with pytest.raises(ControlError, match="must shrink"):
        Drive(20, (8, 12))


def test_stagent_scores_graded_rewards_by_their_own_variance() -> None:
    assert mean_times_variance([1.0, 1.0, 0.0]) == pytest.approx(2 / 3 * 2 / 9)
    assert mean_times_variance([0.5] * 4) == 0.0, "a rubric that always says one half tells nothing"
    even = Stagent(2, candidates=2, rollouts=4)

    class Graded(PromptWorld):
        def serve(self, order: Order, width: int) -> Delivery:
            n = order.width or width
            rewards = (0.5,) * n if order.prompt.uid == "p0" else (0.2, 0.4) * (n // 2)
            return Delivery(order, rewards, (1,) * n)

    (log,) = run(even, Graded(logits=np.zeros(2), gain=0.0), 1, prompts=1, width=4)
    assert [d.order.prompt.uid for d in log.delivered if d.order.for_training] == ["p1"]


def test_stagent_takes_the_upper_frontier() -> None:
    world = PromptWorld(logits=np.linspace(-4, 4, 81), drift=0.0, gain=0.0)
    (log,) = run(Stagent(81, candidates=81, rollouts=400), world, 1, prompts=10, width=4)
    chosen = [int(d.order.prompt.uid[1:]) for d in log.delivered if d.order.for_training]
    assert world.rates[chosen].mean() == pytest.approx(2 / 3, abs=0.06)
    measured = [d for d in log.delivered if not d.order.for_training]
    assert len(measured) == 81
    assert all(d.n == 400 for d in measured)


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


def test_brorl_is_wide_and_what_it_counts_rests_at_the_usual_width() -> None:
    recipe = load_recipe("brorl")
    assert recipe.build().strategy.n == 128
    assert recipe.card.counter is not None
    assert (recipe.card.counter.metric, recipe.card.counter.rest) == ("rollout/group_size", 8.0)
    assert metric_of(recipe.card.counter.metric).name == "rollout/group_size"
    few, many = (np.mean([_falls(n, seed) for seed in range(3)]) for n in (4, 64))
    assert few > 0.05
    assert many < few / 2
