"""Where a run's tokens went: tables that add up to what was decoded, from a real run."""

import io
import json
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import rolltree
from rolltree.cli import main as cli
from rolltree.compare.budget import BudgetConfig, main, page
from rolltree.compare.trace import LabError
from rolltree.control.registry import load_control
from rolltree.metrics.log import read_metrics
from rolltree.recipe.registry import load_recipe
from tests.train.toy import KNOBS, Early, tiny_policy


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    torch.set_num_threads(1)
    parts = replace(load_recipe("dots", window=2).build(), control=load_control("dots", pool=6, references=2))
    out = tmp_path_factory.mktemp("run") / "run"
    rolltree.train(parts, tiny_policy(), Early(), out=out, **{**KNOBS, "eval_every": 0, "forests_every": 0})
    return out


def grids(run):
    return {g.title: g for g in page(run, top=3).grids}


@pytest.mark.papers("dots")
def test_bands_add_up_to_everything_decoded(run):
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "train"]
    decoded = sum(line["budget/decoded"] for line in lines)
    for what in ("tokens", "rollouts"):
        told = sum(v for line in lines for k, v in line.items() if k.startswith(f"budget/{what}/"))
        assert told == (decoded if what == "tokens" else sum(line["budget/leaves"] for line in lines))
    rows = {row[0]: row for row in grids(run)["By difficulty"].rows}
    assert sum(float(row[2].removesuffix(" %")) for row in rows.values() if row[2] != "–") == pytest.approx(
        100, abs=0.3
    )
    assert rows["new"][3] != "0"
    assert sum(int(row[3]) for row in rows.values()) > int(rows["new"][3]), "pooled prompts are seen again"


@pytest.mark.papers("dots")
def test_prompts_arms_and_what_came_from_earlier_steps(run):
    found = grids(run)
    assert len(found["The costliest prompts"].rows) == 3
    tokens = [float(row[1]) for row in found["The costliest prompts"].rows]
    assert tokens == sorted(tokens, reverse=True)
    assert [row[0] for row in found["Arms"].rows] == ["measured", "plain"]
    later = {row[0]: row[1:] for row in found["What came from earlier steps"].rows}
    assert later["groups recalled, a step"][1] == "2", "half of four prompts"
    assert 0 < float(later["staleness of trained tokens in versions"][1]) <= 2


@pytest.mark.papers("dots")
def test_a_run_under_a_schedule_says_what_became_of_its_rollouts(tmp_path):
    knobs = {**KNOBS, "eval_every": 0, "forests_every": 0, "scheduler": "areal", "steps": 4}
    rolltree.train("grpo", tiny_policy(), Early(), out=tmp_path / "run", **knobs)
    found = grids(tmp_path / "run")
    assert sum(int(row[3]) for row in found["By difficulty"].rows) > 0, "plans know what their prompts cost"
    became = {row[0]: int(row[1]) for row in found["What became of rollouts"].rows}
    assert became["trained"] == 4 * KNOBS["prompts"] * 8
    assert became["submitted"] > became["trained"], "areal starts ahead of what it trains"
    tokens = {row[0]: int(row[1]) for row in found["What became of their tokens"].rows}
    assert tokens["trained"] > 0, "which other fates there are depends on timing"


@pytest.mark.papers("dots")
def test_it_is_printed_written_and_refused(run, tmp_path, capsys):
    sink = io.StringIO()
    assert main(BudgetConfig(run, out=tmp_path / "b.html"), Console(file=sink, width=120)) == 0
    assert "What taught nothing" in sink.getvalue()
    assert "By difficulty" in (tmp_path / "b.html").read_text()
    assert cli(["budget", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["Arms"]
    with pytest.raises(LabError, match="no run folder"):
        page(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"kind": "train", "step": 1}) + "\n")
    with pytest.raises(LabError, match="recorded no spending"):
        page(tmp_path)


def test_a_damaged_log_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"kind": "eval", "step": 0}\ngarbage\n{"kind": "eval", "step": 1}\n')
    with pytest.raises(LabError, match="cut off the damaged line"):
        page(tmp_path)
