"""ARRoL's parts on numbers: the head learns and is stored exactly, posteriors are probabilities, shares are kept."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.control.order import ControlError, Delivery, Order, Prompt
from rolltree.control.probe import Judgement, Probed, auc, in_flight
from rolltree.task.protocol import Item
from rolltree.tree.store.values import dumps, loads
from rolltree_papers.arrol import Arrol, ArrolState, Calibrator, QualityHead, Survival, SurvivalJudge
from rolltree_papers.arrol.study import RULES, balance, follow


def examples(seed: int, count: int = 400) -> tuple[list, list[float]]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 8)).astype(np.float32)
    return list(x), (rng.random(count) < 1 / (1 + np.exp(-3 * x[:, 0] - 2 * np.abs(x[:, 1])))).astype(float).tolist()


def test_the_head_learns_what_states_say_and_goes_on_exactly_from_its_stored_state():
    head = QualityHead()
    states, outcomes = examples(0)
    assert head.scores(states[:3]).tolist() == [0.5] * 3
    for at in range(0, 300, 100):
        head.learn(states[at : at + 100], outcomes[at : at + 100], [1.0] * 100)
    stored = loads(dumps(head))
    assert stored == head
    for each in (head, stored):
        each.learn(states[300:], outcomes[300:], [1.0] * 100)
    fresh, truth = examples(1)
    assert np.array_equal(head.scores(fresh), stored.scores(fresh))
    assert auc(head.scores(fresh).tolist(), [y > 0 for y in truth]) > 0.8
    assert len(head.states) == 400
    assert QualityHead(memory=50) != head


def test_the_heads_gradient_is_the_cross_entropys():
    head = QualityHead(hidden=5, decay=0.0)
    states, outcomes = examples(2, 30)
    head.learn(states, outcomes, [1.0] * 30)
    x = np.stack(states).astype(np.float64)
    x = (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-6)
    y, share = np.array(outcomes), np.linspace(0.5, 2, 30)

    def loss() -> float:
        p = 1 / (1 + np.exp(-head._read(x)[0]))
        return float(-(share * (y * np.log(p) + (1 - y) * np.log(1 - p))).sum() / share.sum())

    slopes = {}
    for name in head.weights:
        flat = head.weights[name].ravel()
        at = int(np.argmax(np.abs(flat)))
        held, rise = flat[at], []
        for step in (1e-5, -1e-5):
            flat[at] = held + step
            rise.append(loss())
        flat[at] = held
        slopes[name] = (at, (rise[0] - rise[1]) / 2e-5)
    before = {name: moment.copy() for name, moment in head.first.items()}
    head._update(x, y, share)
    for name, (at, slope) in slopes.items():
        assert (head.first[name].ravel()[at] - 0.9 * before[name].ravel()[at]) / 0.1 == pytest.approx(slope, abs=1e-6)


def test_a_head_for_another_model_is_refused_in_a_sentence():
    head = QualityHead()
    head.learn([np.zeros(4, np.float32)], [1.0], [1.0])
    with pytest.raises(ControlError, match="width 4 and is given 5"):
        head.scores([np.zeros(5, np.float32)])


@pytest.mark.parametrize("bins", [1, 4, 128])
def test_posteriors_are_probabilities_however_little_was_seen(bins):
    made, rng = Calibrator(bins), np.random.default_rng(bins)
    assert made.posterior([0.0, 0.5, 1.0]).tolist() == [0.5] * 3
    for count in (1, 3, 50):
        made.observe(rng.random(count).tolist(), [1.0] * count, [1.0] * count)
        posteriors = made.posterior([0.0, 0.5, 1.0])
        assert ((posteriors > 0.5) & (posteriors < 1)).all()


def test_the_posterior_of_a_full_bin_is_its_share_and_old_counts_fade():
    made = Calibrator(10, keep=0.5)
    made.observe([0.95] * 1000 + [0.05] * 1000, [1.0] * 800 + [0.0] * 200 + [1.0] * 100 + [0.0] * 900, [1.0] * 2000)
    assert made.posterior([0.99, 0.01]) == pytest.approx([0.8, 0.1], abs=0.02)
    for _ in range(8):
        made.observe([0.95] * 100, [0.0] * 100, [1.0] * 100)
    assert made.posterior([0.99])[0] < 0.15


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=40), st.sampled_from(["published", "signed"]), st.floats(0.15, 0.85)
)
def test_survival_keeps_its_share_within_its_bounds(q, rule, keep):
    chances = Survival(rule, keep).chances(q, [str(i % 3) for i in range(len(q))])
    assert chances.mean() == pytest.approx(keep, abs=1e-9)
    assert ((chances >= 0.1) & (chances <= 0.9)).all()


def test_the_published_rule_always_prefers_failures_and_the_signed_one_what_is_rare():
    hard, easy = [0.1, 0.2, 0.3, 0.4], [0.6, 0.7, 0.8, 0.9]
    for q in (hard, easy):
        assert (np.diff(Survival().chances(q)) < 0).all()
    assert (np.diff(Survival("signed").chances(hard)) > 0).all()
    assert (np.diff(Survival("signed").chances(easy)) < 0).all()
    both = Survival("signed").chances([*hard, *easy], ["hard"] * 4 + ["easy"] * 4)
    assert both[3] > both[0]
    assert both[4] > both[7]
    assert Survival("random").chances(hard).tolist() == [0.5] * 4


def test_pruned_rollouts_are_unknown_to_head_and_counts():
    state = Arrol(bins=4).start()
    said = Judgement(0.5, 0.5, 0.5)
    seen = [Probed(np.full(3, i, np.float32), said, i % 2 == 0, 5, None if i % 2 == 0 else 1.0) for i in range(6)]
    state.learn([Delivery(Order(Prompt(Item("a", "", 1), 0)), (), probes=tuple(seen))], reweigh=True)
    assert sum(state.calibrator.right) == 3 * 2.0
    assert sum(state.calibrator.wrong) == 0
    assert state.head.states[:, 0].tolist() == [1, 3, 5]
    told = in_flight(seen)
    assert told["budget/probe_pruned"] == 3
    assert told["budget/probe_pruned_tokens"] == 15
    assert told["budget/probe_accuracy"] == 1.0
    assert np.isnan(told["budget/probe_auc"])
    assert set(in_flight([])) == set(told)


def test_nobody_is_pruned_while_the_head_warms_up_and_reference_posteriors_replace_the_group():
    state: ArrolState = Arrol().start()
    states = [np.zeros(3, np.float32)] * 4
    assert [j.keep for j in SurvivalJudge(state, Survival(), "group", 0, warming=True).judge(states, ["a"] * 4)] == [
        1.0
    ] * 4
    state.lately = [0.9] * 50
    state.calibrator.observe([0.5] * 4, [0.0] * 4, [1.0] * 4)
    (alone,) = SurvivalJudge(state, Survival(), "recent", 0, warming=False).judge(states[:1], ["a"])
    assert alone.keep > 0.6, "it looks worse than those seen lately, whom the published rule would rather prune"
    assert SurvivalJudge(state, Survival(), "group", 0, warming=False).at(48) == 12
    assert SurvivalJudge(state, Survival(), "group", 0, warming=False).at(16_384) == 512


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"rule": "x"}, "no rule 'x'"),
        ({"over": "x"}, "over='x'"),
        ({"keep": 0.95}, "keep=0.95"),
        ({"bins": 0}, "bins=0"),
    ],
)
def test_knobs_that_make_no_sense_are_refused(knobs, said):
    with pytest.raises(ControlError, match=said):
        Arrol(**knobs)


def test_on_known_chances_the_published_rule_unbalances_hard_prompts_and_the_signed_one_does_not():
    found = {(rule, mean): balance(RULES[rule], mean, 0, groups=60) for rule in RULES for mean in (0.2, 0.8)}
    assert found["published", 0.2][0] < found["random", 0.2][0] < found["signed", 0.2][0]
    assert found["published", 0.2][1] < found["random", 0.2][1] < found["signed", 0.2][1]
    assert found["published", 0.8][1] > found["random", 0.8][1]
    assert found["signed", 0.8][1] > found["random", 0.8][1]
    assert found["signed, head shuffled", 0.2][1] < found["signed", 0.2][1]
    assert all(found["oracle", m][1] > found[rule, m][1] for rule in RULES if rule != "oracle" for m in (0.2, 0.8))


def test_a_head_follows_a_drifting_truth_and_a_blind_one_does_not():
    control = Arrol(warm=3, bins=16, forget=0.9)
    seen, blind = (follow(control, 0, steps=20, blind=b) for b in (False, True))
    assert seen.auc > 0.7 > blind.auc
    assert seen.auc < seen.ceiling
    assert seen.error < blind.error
    still = follow(control, 0, steps=20, drift=0.0)
    assert abs(still.bias) < 0.1
    assert still.error < seen.error
