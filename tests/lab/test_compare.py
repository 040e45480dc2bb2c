"""Comparisons of simulated runs with a known effect: right verdicts, reuse, interruption, and what is written."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from rolltree.compare.arms import arms
from rolltree.compare.compare import CompareConfig, compare, main
from rolltree.compare.contrast import contrasts, measures
from rolltree.compare.page import page
from rolltree.compare.regimes import REGIMES, Calibrated
from rolltree.compare.runner import Shelf, Spec
from rolltree.compare.stats import describe
from rolltree.compare.trace import LabError, Trace
from rolltree.errors import RolltreeError, UnknownNameError
from tests.lab.simulated import Simulated, conditions, simulate


def quiet():
    return Console(file=io.StringIO(), width=120)


@pytest.mark.papers("latr")
def test_a_real_gain_is_found_and_none_is_not_invented(tmp_path):
    shelf = Shelf(tmp_path, Simulated({"grpo": 0.2, "treepo": 0.3, "latr": 0.2}))
    made = compare(arms(["grpo", "treepo", "latr"]), conditions(), range(5), shelf, console=quiet())
    assert [c.outcome for c in made.contrasts] == ["holds", "no difference found"]
    assert made.contrasts[0].effect.estimate == pytest.approx(0.1, abs=0.03)
    assert "over 5 seeds" in made.contrasts[0].words
    assert made.contrasts[0].p_holm >= made.contrasts[0].p


def test_a_gain_smaller_than_of_interest_fails(tmp_path):
    shelf = Shelf(tmp_path, Simulated({"a": 0.2, "b": 0.23}, noise=0.002))
    made = compare(arms(["a", "b"]), conditions(), range(6), shelf, least=0.1, console=quiet())
    assert made.contrasts[0].outcome == "claim excluded"
    assert "by less than the claimed 10.0 points" in made.contrasts[0].words


def test_error_rate_of_whole_comparisons():
    """Three recipes that equal the baseline: a study that finds any difference is as rare as stated."""
    recipes, trials, wrong = arms(["a", "b", "c", "d"]), 250, 0
    for trial in range(trials):
        measured = {}
        for arm in recipes:
            traces = [simulate(Spec(arm, 5 * trial + s, conditions()), 0.2, 0.02) for s in range(5)]
            measured[arm.label] = measures(traces, "pass@1", 10_000.0, "decoded")
        wrong += any(c.outcome != "no difference found" for c in contrasts(measured, "a", "pass@1"))
    assert wrong / trials < 0.05 + 3.5 * (0.05 * 0.95 / trials) ** 0.5


def test_finished_runs_are_reused_and_other_conditions_are_not(tmp_path):
    runner = Simulated({"a": 0.1, "b": 0.2})
    shelf = Shelf(tmp_path, runner)
    first = compare(arms(["a", "b"]), conditions(), range(3), shelf, console=quiet())
    again = compare(arms(["b", "a"]), conditions(), range(4), shelf, console=quiet())
    assert len(runner.made) == 8
    assert again.headline["a"].per_seed[0] == first.headline["a"].per_seed[0]
    compare(arms(["a", "b"]), conditions(level=3), range(3), shelf, console=quiet())
    assert len(runner.made) == 14


def test_runs_of_other_code_are_made_anew(tmp_path):
    class Changed(Simulated):
        def made_of(self, spec):
            return (describe,)

    spec = Spec(arms(["a"])[0], 0, conditions())
    assert Shelf(tmp_path, Simulated({"a": 0.1})).place(spec) != Shelf(tmp_path, Changed({"a": 0.1})).place(spec)


def test_runs_on_other_data_are_made_anew(tmp_path):
    """The same name, another content: data of a task, code of an environment, weights of a model."""
    data, code, model = tmp_path / "items.jsonl", tmp_path / "env.py", tmp_path / "model"
    model.mkdir()
    weights = model / "weights"
    shelf = Shelf(tmp_path / "cache", Simulated({"a": 0.1}))
    for path, changes in (
        (data, {"task": f"jsonl:{data}"}),
        (data, {"task": f"jsonl:{data}?max_tokens=8"}),
        (code, {"task": f"trl:{code}:Env"}),
        (weights, {"model": str(model)}),
    ):
        spec = Spec(arms(["a"])[0], 0, conditions(**changes))
        path.write_text("one")
        first = shelf.place(spec)
        assert shelf.place(spec) == first
        path.write_text("two")
        assert shelf.place(spec) != first


def test_an_interrupted_comparison_keeps_whole_seeds_and_continues(tmp_path):
    runner = Simulated({"a": 0.1, "b": 0.2}, stop_after=5)
    config = CompareConfig(("a", "b"), budget="10k", seeds=4, out=tmp_path / "out", cache=tmp_path / "cache")
    assert main(config, runner, quiet()) == 130
    assert json.loads((tmp_path / "out/compare.json").read_text())["seeds"] == [0, 1]
    assert "Interrupted: 2 of 4 seeds" in (tmp_path / "out/report.html").read_text()
    runner.stop_after = None
    assert main(config, runner, quiet()) == 0
    assert len(runner.made) == 8
    assert json.loads((tmp_path / "out/compare.json").read_text())["seeds"] == [0, 1, 2, 3]


def test_an_interruption_before_anything_pairs_is_passed_on(tmp_path):
    shelf = Shelf(tmp_path, Simulated({"a": 0.1, "b": 0.2}, stop_after=1))
    with pytest.raises(KeyboardInterrupt):
        compare(arms(["a", "b"]), conditions(), range(2), shelf, console=quiet())


def test_one_seed_is_shown_without_interval(tmp_path):
    shelf = Shelf(tmp_path, Simulated({"a": 0.1, "b": 0.3}))
    made = compare(arms(["a", "b"]), conditions(), [0], shelf, console=quiet())
    assert made.contrasts[0].outcome == "no difference found"
    assert "no interval can be given" in made.contrasts[0].words
    assert page(made).charts[0].series[0].low == ()


def test_what_is_written_can_be_read_by_others(tmp_path):
    config = CompareConfig(
        ("a", "b"), budget="10k", seeds=1, out=tmp_path / "out", cache=tmp_path / "cache", set=("b:bonus=0.1",),
        metric="pass@k area",
    )  # fmt: skip
    out = quiet()
    assert main(config, Simulated({"a": 0.1, "b": 0.1}), out) == 0
    told = json.loads((tmp_path / "out/compare.json").read_text())
    assert told["contrasts"][0]["effect"]["low"] is None
    assert told["metric"] == "pass@8 area"
    assert told["command"] == (
        "rolltree compare a b --task countdown --budget 10k --seeds 1 --metric 'pass@k area' --set b:bonus=0.1"
        f" --cache {tmp_path / 'cache'}"
    )
    assert told["command"] in (tmp_path / "out/report.html").read_text().replace("&#x27;", "'")
    assert "report" in out.file.getvalue()


def test_areas_and_pass_at_k_are_judged_when_asked(tmp_path):
    shelf = Shelf(tmp_path, Simulated({"a": 0.2, "b": 0.4}, noise=0.0))
    made = compare(arms(["a", "b"]), conditions(), range(3), shelf, metric="pass@1 area", console=quiet())
    assert made.contrasts[0].effect.estimate == pytest.approx(0.1, abs=0.01)


def test_metrics_of_rollouts_are_judged_by_their_mean(tmp_path):
    shelf = Shelf(tmp_path, Simulated({"a": 0.2, "b": 0.4}))
    made = compare(arms(["a", "b"]), conditions(), range(3), shelf, metric="sharing", console=quiet())
    assert made.contrasts[0].effect.estimate == pytest.approx(0.2)
    assert "points" not in made.contrasts[0].words
    with pytest.raises(LabError, match="'length'; it has"):
        compare(arms(["a", "b"]), conditions(), range(3), shelf, metric="length", console=quiet())


def test_the_length_of_held_out_samples_is_judged_where_the_run_ends(tmp_path):
    def shrinking(spec, folder, tick):
        end = 10.0 if spec.arm.recipe == "b" else 30.0 + spec.seed
        rows = tuple({"decoded": c, "trained": c, "seconds": c, "pass@1": 0.5, "pass@8": 0.5, "length": 99.0,
                      "eval/length": 30.0 if c == 0 else end} for c in (0.0, 8_000.0, 9_000.0, 10_000.0))  # fmt: skip
        return Trace(spec.arm.label, spec.seed, rows)

    runner = Simulated({"a": 0.1, "b": 0.1})
    runner.run = shrinking
    made = compare(arms(["a", "b"]), conditions(), range(3), Shelf(tmp_path, runner), metric="eval/length",
                   console=quiet())  # fmt: skip
    assert made.metric == "eval/length"
    assert made.contrasts[0].effect.estimate == pytest.approx(-21.0)
    assert "points" not in made.contrasts[0].words
    assert page(made).charts


def test_of_some_metrics_less_is_better(tmp_path):
    def falling(spec, folder, tick):
        rate = 0.6 - (0.3 if spec.arm.recipe == "b" else 0.0) + 0.001 * spec.seed * (spec.arm.recipe == "b")
        told = {"pass@1": 0.2, "pass@8": 0.2, "truncated": rate, "length": 40 * rate}
        rows = tuple({"decoded": c, "trained": c, "seconds": c, **told} for c in (0.0, 10_000.0))
        return Trace(spec.arm.label, spec.seed, rows)

    runner = Simulated({"a": 0.1, "b": 0.1})
    runner.run = falling
    shelf = Shelf(tmp_path, runner)
    made = compare(arms(["a", "b"]), conditions(), range(3), shelf, metric="truncated", console=quiet())
    assert made.contrasts[0].words.startswith("holds: b is better than a, -29.9 points in truncated")
    made = compare(arms(["a", "b"]), conditions(), range(3), shelf, metric="length", console=quiet())
    (row,) = next(g.rows for g in page(made).grids if g.title.startswith("Differences in"))
    assert row[2].startswith("-11.96 (")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"confidence": 95}, "as in 0.95"),
        ({"confidence": float("nan")}, "as in 0.95"),
        ({"least": -0.1}, "least gain -0.1"),
        ({"target": 5}, "target 5"),
        ({"out": "file"}, "cannot be written"),
        ({"cache": "file/below"}, "cannot be written"),
    ],
)
def test_what_cannot_be_judged_or_written_is_refused_before_anything_is_spent(tmp_path, changes, says):
    (tmp_path / "file").write_text("kept")
    where = {"out": "out", "cache": "cache"} | {k: v for k, v in changes.items() if k in ("out", "cache")}
    runner = Simulated({"a": 0.1, "b": 0.2})
    config = CompareConfig(
        ("a", "b"), budget="10k", **{**changes, **{name: tmp_path / place for name, place in where.items()}}
    )
    with pytest.raises(RolltreeError, match=says):
        main(config, runner, quiet())
    assert not runner.made
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_sweeps_make_arms(tmp_path):
    shelf = Shelf(tmp_path, Simulated({"a": 0.2}, noise=0.001))
    chosen = arms(["a"], sweeps=["bonus=0,0.1,0.2"])
    made = compare(chosen, conditions(), range(4), shelf, console=quiet())
    assert [c.subject for c in made.contrasts] == ["a bonus=0.1", "a bonus=0.2"]
    assert [round(c.effect.estimate, 1) for c in made.contrasts] == [0.1, 0.2]


def test_cost_to_target_is_shown_with_how_many_got_there(tmp_path):
    shelf = Shelf(tmp_path, Simulated({"a": 0.05, "b": 0.5}, noise=0.001))
    made = compare(arms(["a", "b"]), conditions(), range(4), shelf, target=0.5, console=quiet())
    rows = {row[0]: row for row in page(made).grids[0].rows}
    assert rows["a"][4] == "not reached (0 of 4)"
    assert rows["b"][4].endswith("k")


def test_a_run_that_was_given_less_is_refused():
    spec = Spec(arms(["a"])[0], 0, conditions())
    short = simulate(spec, 0.2, 0.0)
    with pytest.raises(LabError, match=r"only up to 10200 of 20000"):
        measures([short], "pass@1", 20_000.0, "decoded")


@pytest.mark.parametrize(
    ("recipes", "seeds", "says"),
    [(["a"], 3, "two arms or more"), (["a", "b"], 0, "at least one seed"), (["a", "zz"], 1, "'zz'")],
)
def test_bad_questions_are_refused_before_anything_runs(tmp_path, recipes, seeds, says):
    runner = Simulated({"a": 0.1, "b": 0.1})
    with pytest.raises(LabError, match=says):
        compare(arms(recipes), conditions(), range(seeds), Shelf(tmp_path, runner), console=quiet())
    with pytest.raises(UnknownNameError, match="did you mean 'pass@1'"):
        compare(arms(["a", "b"]), conditions(), range(3), Shelf(tmp_path, runner), metric="pas@1", console=quiet())
    assert not runner.made


def test_metrics_missing_in_one_arm_are_left_out_of_charts(tmp_path):
    made = compare(
        arms(["a", "b"]), conditions(), range(2), Shelf(tmp_path, Simulated({"a": 0.1, "b": 0.2})), console=quiet()
    )
    titles = [c.title for c in page(made).charts]
    assert "Held-out pass@1" in titles
    assert not any("Entropy" in t for t in titles)
    assert np.isfinite(made.target)


def test_a_regime_brings_task_budget_policy_and_calibrated_rate(tmp_path, monkeypatch):
    monkeypatch.setattr("rolltree.compare.regimes.calibrated", lambda name: Calibrated(3e-4, 2))
    seen = []

    class Seen(Simulated):
        def run(self, spec, folder, tick):
            seen.append(spec)
            return super().run(spec, folder, tick)

    asked = CompareConfig(("grpo", "rloo"), regime="stale8", seeds=2, out=tmp_path / "out", cache=tmp_path / "cache")
    assert main(asked, Seen({"grpo": 0.1, "rloo": 0.2}), quiet()) == 0
    assert {spec.conditions for spec in seen} == {REGIMES["stale8"].conditions()}
    assert {dict(s.arm.knobs)["train.staleness"] for s in seen} == {8}
    assert {dict(s.arm.knobs)["optim.lr"] for s in seen} == {3e-4}
    told = json.loads((tmp_path / "out/compare.json").read_text())["command"]
    assert "--regime stale8" in told
    assert "--task" not in told
    seen.clear()
    main(replace(asked, set=("optim.lr=0.01",), budget="10k"), Seen({"grpo": 0.1, "rloo": 0.2}), quiet())
    assert {(dict(s.arm.knobs)["optim.lr"], s.conditions.budget) for s in seen} == {(0.01, 10_000)}


def test_a_regime_with_a_task_or_without_its_files_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong, says in (
        (CompareConfig(("grpo", "rloo"), regime="fresh", task="grid"), "leave --task grid out"),
        (CompareConfig(("grpo", "rloo"), regime="fresh", eval_samples=2), "leave --eval-samples 2 out"),
        (CompareConfig(("grpo", "rloo"), regime="tails"), "needs studies/policies/tails"),
        (CompareConfig(("grpo", "rloo"), regime="frsh"), "frsh"),
    ):
        with pytest.raises(RolltreeError, match=says):
            main(wrong, Simulated({"grpo": 0.1, "rloo": 0.2}), quiet())
