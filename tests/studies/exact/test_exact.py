from __future__ import annotations

import numpy as np
import pytest

from rolltree.credit.registry import load_credit
from rolltree.tree.table import table
from studies.exact import PROBLEMS, measure_all, sample, solve
from studies.exact.chart import lines
from studies.exact.claims import leaf_mean_bias, mass_balance, sign_flips, two_channels
from studies.exact.measure import summarise


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_enumerated_gradient_is_the_slope_of_the_enumerated_return(name):
    problem = PROBLEMS[name]()
    gradient = solve(problem).gradient
    rng = np.random.default_rng(0)
    for _ in range(3):
        way = rng.normal(size=problem.logits.shape)
        kept = problem.logits.copy()
        ends = []
        for sign in (1, -1):
            problem.logits[:] = kept + sign * 1e-5 * way
            ends.append(solve(problem).objective)
        problem.logits[:] = kept
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx((gradient * way).sum(), rel=1e-5, abs=1e-9)


@pytest.mark.parametrize("name", PROBLEMS)
def test_sampled_returns_have_the_enumerated_mean(name):
    problem = PROBLEMS[name]()
    solved = solve(problem)
    tab = table(sample(problem, solved, np.random.default_rng(1), trees=300, group=4))
    assert abs(tab.reward.mean() - solved.objective) < 4.5 * tab.reward.std() / np.sqrt(len(tab.reward))


@pytest.mark.parametrize("name", ["tree", "tools"])
def test_leave_one_out_is_unbiased_and_the_group_mean_is_a_fixed_factor_below(name):
    got = measure_all(
        {"rloo": load_credit("rloo"), "mean": load_credit("dr_grpo")}, PROBLEMS[name](), group=4, trees=800
    )
    assert got["rloo"].unbiased
    assert got["mean"].scale == pytest.approx(got["rloo"].scale * 3 / 4)
    assert not got["mean"].unbiased
    assert got["mean"].bias < 3 * got["mean"].bias_se


def test_an_exact_critic_is_unbiased_and_less_noisy_than_the_group():
    got = measure_all(
        {"gae": load_credit("gae", decay=1.0), "rloo": load_credit("rloo")}, PROBLEMS["tree"](), trees=600
    )
    assert got["gae"].unbiased
    assert got["gae"].noise < got["rloo"].noise


def test_hiper_is_unbiased_and_less_noisy_than_flat_gae():
    credits = {
        "hiper": load_credit("hiper", whiten=False, segment_decay=1.0),
        "flat": load_credit("gae", decay=1.0),
    }
    got = measure_all(credits, PROBLEMS["options"](), group=1, trees=3000)
    assert got["hiper"].unbiased
    assert got["hiper"].noise + 3 * got["hiper"].noise_se < got["flat"].noise


def test_wrong_estimators_are_found_out():
    rng = np.random.default_rng(0)
    truth = np.array([1.0, -2.0, 0.5])
    honest = truth + rng.normal(size=(4000, 3))
    assert summarise(honest, truth).unbiased
    tilted = summarise(honest + np.array([0.0, 0.0, 0.3]), truth)
    assert not tilted.unbiased
    assert tilted.bias > 5 * tilted.bias_se
    assert summarise(3 * honest, truth).scale == pytest.approx(3, rel=0.05)
    assert summarise(3 * honest, truth).noise == pytest.approx(summarise(honest, truth).noise)


def test_step_credit_without_repeats_is_the_group_mean():
    got = measure_all(
        {"gigpo": load_credit("gigpo", omega=0.0), "mean": load_credit("dr_grpo")}, PROBLEMS["tools"](), trees=50
    )
    assert got["gigpo"] == got["mean"]


def test_claims_that_are_theorems_hold():
    assert all(float(row[-1]) < 1e-12 for row in two_channels().rows)
    balance = mass_balance(draws=200)
    assert balance.rows[-1][-2] == "0.000"
    assert float(balance.verdict.split("change to ")[1].split(".")[0]) < 1e-12
    flips = {(r[0], r[1]): [float(x.rstrip("%")) for x in r[2:]] for r in sign_flips(draws=4000).rows}
    assert flips["0 / 1", "4"] == [0, 0, 0]
    assert flips["Gaussian", "2"][2] < flips["Gaussian", "2"][0]
    for problem, forks, rule, _, bias in leaf_mean_bias(trees=300).rows:
        off, error = (float(x) for x in bias.split(" ± "))
        if forks == "uneven":
            assert (abs(off) > 5 * error) == (rule == "leaf_mean"), (problem, rule, bias)


def test_charts_are_well_formed():
    from xml.etree import ElementTree

    text = lines("a & b", "x", "y", {"one": [(2, 1.0, 0.1), (4, 0.0, 0.1)], "two": [(2, 3.0, 0.2), (4, 2.0, 5.0)]})
    root = ElementTree.fromstring(text)
    assert len([e for e in root.iter() if e.tag.endswith("circle")]) == 3
