"""The exact staleness lab: what must hold whatever the numbers say."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rolltree.objective.registry import load_objective
from studies.exact.chain import LENGTH, chain, coefficients, stale_batch, start, versions
from studies.exact.staleness import Method, drift, measure, methods, train
from studies.exact.staleness_page import Results, write_page

BY_NAME = {m.name: m for m in methods()}


@pytest.fixture(scope="module")
def run():
    problem = chain(0)
    return problem, versions(problem, 0, 40)


def test_laws_sum_to_one_and_the_score_has_mean_zero(run) -> None:
    problem, published = run
    distribution = problem.distribution(published[-1])
    assert distribution.sum().item() == pytest.approx(1.0)
    scores = problem.scores(published[-1], torch.ones(len(distribution), LENGTH, dtype=torch.float64))
    assert (distribution @ scores).abs().max() < 1e-12


def test_scores_are_the_gradients_of_path_log_probs(run) -> None:
    problem, published = run
    theta = published[-1].clone().requires_grad_()
    rows = [0, 77, 6560]
    ones = torch.ones(len(problem.reward), LENGTH, dtype=torch.float64)
    got = problem.scores(theta.detach(), ones)[rows]
    for row, mine in zip(rows, got, strict=True):
        (wanted,) = torch.autograd.grad(problem.logp(theta)[row].sum(), theta)
        torch.testing.assert_close(mine, wanted.reshape(-1))


def test_without_lag_every_method_is_unbiased(run) -> None:
    problem, published = run
    for method in methods():
        assert measure(problem, published[-1], published[-1], method).bias < 1e-9, method.name


def test_whole_sequence_weights_are_unbiased_at_any_lag_and_others_are_not(run) -> None:
    problem, published = run
    assert measure(problem, published[-1], published[0], BY_NAME["sequence IS"]).bias < 1e-9
    for name in ("no correction", "TIS (token, cap 2)", "MinPRO", "BAPO"):
        assert measure(problem, published[-1], published[0], BY_NAME[name]).bias > 0.05, name


def test_the_enumerated_moments_agree_with_sampling(run) -> None:
    problem, published = run
    theta, behaviour, method = published[-1], published[-20], BY_NAME["TIS (token, cap 2)"]
    exact = measure(problem, theta, behaviour, method)
    distribution = problem.distribution(behaviour)
    drawn = torch.multinomial(distribution, 40_000, replacement=True, generator=torch.Generator().manual_seed(0))
    batch = stale_batch(
        problem, theta, behaviour, distribution, problem.reward - (distribution * problem.reward).sum(), proximal=True
    )
    per_path = problem.scores(theta, coefficients(method.objective, batch, len(distribution)) / distribution[:, None])[
        drawn
    ]
    true = problem.true_gradient(theta).reshape(-1)
    assert ((per_path.mean(0) - true).norm() / true.norm()).item() == pytest.approx(exact.bias, abs=0.05)
    deviation = (per_path.var(0).sum() / 64).sqrt() / true.norm()
    assert deviation.item() == pytest.approx(exact.deviation, rel=0.05)


def test_the_baseline_of_vcpo_lowers_the_variance_of_its_loss(run) -> None:
    problem, published = run
    theta, behaviour = published[-1], published[-30]
    plain = Method("", load_objective("vcpo", cap=1e9))
    with_baseline = Method("", load_objective("vcpo", cap=1e9), baseline=True)
    assert (
        measure(problem, theta, behaviour, with_baseline).deviation
        < measure(problem, theta, behaviour, plain).deviation
    )


def test_drift_grows_with_lag(run) -> None:
    problem, published = run
    rows = [drift(problem, published[-1], published[-1 - lag]) for lag in (0, 4, 16, 32)]
    assert rows[0].gap == 0.0
    assert rows[0].ess == pytest.approx(1.0)
    assert [r.gap for r in rows] == sorted(r.gap for r in rows)
    assert [r.ess for r in rows] == sorted((r.ess for r in rows), reverse=True)


def test_training_learns_and_is_reproducible() -> None:
    problem = chain(1)
    method = BY_NAME["VCPO with its baseline and step"]
    first = train(problem, method, 2, 0, steps=25)
    assert first == train(problem, method, 2, 0, steps=25)
    assert first > 2 * problem.value(start()).item()


def test_the_page_holds_every_number_and_the_plot_every_line(tmp_path: Path) -> None:
    cells = [[[0.1, 0.2, 0.3], [1.0, 1.0, 1.0]], [[5.0, 6.0, 7.0], [0.0, 0.0, 0.0]]]
    tables = dict.fromkeys(("bias", "deviation", "efficiency"), cells) | dict.fromkeys(
        ("gap", "ess", "value"), cells[:1]
    )
    page = write_page(tmp_path, Results(["a <b>", "c"], (0, 1), tables, (0, 1), cells, 64, 3)).read_text()
    assert "| a <b> | 0.20 [0.10, 0.30] | 1.00 |" in page
    assert page.count("| c |") == 4
    svg = (tmp_path / "staleness.svg").read_text()
    assert svg.count("<polyline") == 6
    assert "a &lt;b&gt;" in svg
    assert "(cut at 3)" in svg
