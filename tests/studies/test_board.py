"""Tables of a study: priced before they run, made seed by seed, resumed, judged as one family, with flat controls."""

import json
from dataclasses import replace

import pytest

from rolltree.compare.regimes import REGIMES, calibrated, regime
from rolltree.compare.trace import LabError, Trace, TraceTally
from rolltree.compare.train_runner import TrainRunner
from rolltree.errors import UnknownNameError
from rolltree.recipe.registry import counter_of
from studies.board import BoardSettings, cells, main, priced
from studies.calibrate import CalibrateSettings
from studies.calibrate import main as calibrate
from studies.shelf_runs import alone, bill
from studies.study_shelf import StudyShelf
from studies.tables import TABLES, is_flat
from tests.lab.simulated import Simulated


class Counting(Simulated):
    """Runs that record their recipe's counter and processor time."""

    def run(self, spec, folder, tick):
        made = super().run(spec, folder, tick)
        name = counter_of(spec.arm.recipe).metric
        flat = dict(spec.arm.knobs).get("use_flat")
        rows = [
            {**row, name: 0.0 if flat or spec.arm.recipe == "latr" else 1.0, "time/processor": 2.0} for row in made.rows
        ]
        return Trace(made.label, made.seed, tuple(rows))


GAINS = {"grpo": 0.2, "treepo": 0.3, "latr": 0.2, "rose": 0.2}


def small(tmp_path, **changes):
    return replace(
        BoardSettings("trees-fresh", seeds=4, lr=1e-4, cache=tmp_path / "cache", out=tmp_path / "out",
                      kept=tmp_path / "kept"), **changes
    )  # fmt: skip


@pytest.mark.papers("latr", "rose")
def test_a_table_is_priced_made_and_resumed(tmp_path, capsys):
    runner = Counting(GAINS, stop_after=10)
    assert main(small(tmp_path, plan=True), runner) is None
    assert "28 runs, 0 finished" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        main(small(tmp_path), runner)
    assert "| treepo |" in (tmp_path / "out/trees-fresh.md").read_text(), "whole seeds are written as they come"
    whole = [p for _, p in priced(small(tmp_path), TABLES["trees-fresh"])]
    left = bill(whole, StudyShelf(tmp_path / "cache", runner, kept=tmp_path / "kept"))
    assert (left.runs, left.finished) == (28, 10)
    assert left.seconds == pytest.approx(18 * 2.0 * 9), (
        "nine rows of two seconds a run: what runs took corrects the price"
    )
    runner.stop_after = None
    main(small(tmp_path), runner)
    assert len(runner.made) == 28


@pytest.mark.papers("latr", "rose")
def test_trees_are_held_against_their_flat_controls_and_idle_rows_are_void(tmp_path):
    found = main(small(tmp_path, seeds=6), Counting(GAINS, noise=0.002))
    text = (tmp_path / "out/trees-fresh.md").read_text()
    judged, costs = text.split("Costs of a run")
    row = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in judged.splitlines() if line.startswith("| ")}
    assert "| treepo | – | 18 |" in costs, "nine rows of two processor seconds"
    assert row["treepo"][3] == "treepo flat"
    assert row["treepo flat"][3] == "grpo"
    assert row["latr"][6] == "void: never acted"
    assert not row["latr flat"][6].startswith("void"), "a control is there not to act"
    assert "6 comparisons are one family" in text
    told = json.loads((tmp_path / "out/trees-fresh.json").read_text())
    assert len(told["fresh / grpo"]["values"]) == 6
    assert found is not None


@pytest.mark.papers("latr", "rose")
def test_items_are_drawn_again_where_runs_kept_them(tmp_path):
    class Itemised(Counting):
        def run(self, spec, folder, tick):
            made = super().run(spec, folder, tick)
            right = 3 if spec.arm.label == "treepo" else 1
            return replace(made, items={f"i{k}": TraceTally(4, right + (k + spec.seed) % 2) for k in range(6)})

    main(small(tmp_path, seeds=3, rows=("treepo", "treepo flat")), Itemised(GAINS))
    text = (tmp_path / "out/trees-fresh.md").read_text()
    assert text.count("| +50.0 (+50.0 to +50.0) |") == 1, "every item is apart by two of four samples"


def test_rates_and_seeds_are_the_same_for_all_rows_of_a_column():
    plan = TABLES["stability"]
    of = priced(BoardSettings("stability", plan=True), plan)
    assert len(of) == 9 * 4 * 2 * 6 + 4 * 2 * 14, "six seeds of every row, twenty of the baseline"
    assert {cell.row.label for cell, p in of if p.spec.seed >= 6} == {"ppo-clip"}
    for column in {cell.column for cell, _ in of}:
        knobs = [dict(p.spec.arm.knobs) for cell, p in of if cell.column == column]
        assert len({(k["optim.lr"], k["optim.minibatches"], k.get("train.staleness")) for k in knobs}) == 1
    assert {cell.factor for cell, _ in of} == {1.0, 4.0}
    first = [p.spec.seed for _, p in of[: 9 * 8]]
    assert set(first) == {0}, "seed by seed, so that what is finished is paired"


@pytest.mark.parametrize("name", list(TABLES))
def test_every_arm_of_a_table_can_be_built(name):
    runner = TrainRunner()
    settings = BoardSettings(name, plan=True, seeds=1)
    for cell, p in priced(settings, TABLES[name]):
        parts = runner.parts(p.spec)
        assert is_flat(cell.row) == cell.row.label.endswith(" flat")
        assert parts.name
    assert cells(settings, TABLES[name])


@pytest.mark.papers("latr", "rose")
def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="stability"):
        main(small(tmp_path, name="stabilty"), Counting(GAINS))
    with pytest.raises(UnknownNameError, match="treepo"):
        main(small(tmp_path, rows=("trepo",)), Counting(GAINS))
    with pytest.raises(UnknownNameError, match="stale8"):
        regime("stale9")


def test_a_calibration_stores_what_it_tried_and_only_then_a_table_runs(tmp_path):
    class Hot(Simulated):
        def run(self, spec, folder, tick):
            lr = dict(spec.arm.knobs)["optim.lr"]
            self.gains = {"grpo": 0.3 if lr == 1.25e-4 else 0.1}
            return super().run(spec, folder, tick)

    with pytest.raises(LabError, match=r"not calibrated; run `python -m studies.calibrate fresh`"):
        calibrated("fresh", tmp_path)
    best = calibrate(
        CalibrateSettings("fresh", out=tmp_path, cache=tmp_path / "cache", kept=tmp_path / "kept"), Hot({"grpo": 0.1})
    )
    assert best == calibrated("fresh", tmp_path)
    assert best.lr == 1.25e-4
    told = json.loads((tmp_path / "fresh.json").read_text())
    assert len(told["tried"]) == len(REGIMES["fresh"].rates) * len(REGIMES["fresh"].updates)
    assert min(told["seeds"]) >= 1000, "seeds of its own"


def test_one_study_at_a_time(tmp_path):
    with alone(tmp_path), pytest.raises(LabError, match="another study makes runs"), alone(tmp_path):
        pass
