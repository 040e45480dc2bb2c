"""Each detector finds its planted pathology, no other one speaks, and healthy logs are silent."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.cli.serve import ServeArguments
from rolltree.cli.train import TrainArguments
from rolltree.doctor import CheckedRun, detectors, examine, findings
from rolltree.doctor.detector import thresholds
from rolltree.doctor.examination import reference
from rolltree.doctor.finding import Fix
from rolltree.errors import RolltreeError
from rolltree.gateway.agents.limits import AgentLimits
from rolltree.objective.named import CORRECTIONS
from rolltree.recipe.registry import knobs_of, recipes
from rolltree.task.data.flags import DataFlags
from rolltree.training.config import Optim, TrainConfig, known_fields
from tests.doctor.planted import PLANTED, logged

FROM_FORESTS = {
    "near_duplicates", "leaked_answers", "judge_follows_length", "judge_follows_position",
    "judge_follows_confidence",
    "thrown_answers", "endless_agents", "template_drift",
}  # fmt: skip
LEVELS = {
    "zero_variance": "reward/zero_variance_trained",
    "solved_prompts": "reward/all_solved_tokens",
    "duplicates": "rollout/duplicates",
    "all_wrong_prompts": "reward/all_wrong_tokens",
    "truncated_answers": "rollout/truncated",
    "stragglers": "rollout/length_tail",
    "idle_engine": "time/idle_load",
    "starved_prompts": "rollout/starved_prompts",
    "tool_failures": "rollout/tool_failures",
    "stale_rollouts": "staleness/mean",
    "mismatch": "policy/mismatch",
    "wrong_labels": "reward/vote_wrong",
    "crashes": "rollout/failed_share",
    "retries": "rollout/retries",
    "noisy_verifier": "reward/split_transcripts",
    "split_answers": "reward/split_answers",
    "length_bias": "rollout/length_bias",
}


def test_every_detector_has_a_planted_pathology() -> None:
    assert set(PLANTED) | FROM_FORESTS == set(detectors())


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_pathology_is_found_and_nothing_else(name: str) -> None:
    found = findings(logged(PLANTED[name]))
    assert {f.name for f in found} == {name}
    only = found[0]
    assert only.until is None
    assert only.severity in ("warning", "critical")
    assert only.fix
    assert set(detectors()[name].thresholds) & set(only.numbers), "a finding states its thresholds"


@pytest.mark.parametrize("seed", range(8))
def test_healthy_logs_are_silent(seed: int) -> None:
    report = examine(logged(seed=seed))
    assert report.findings == ()
    assert set(report.not_checked) == FROM_FORESTS
    assert set(report.healthy) == set(detectors()) - FROM_FORESTS


@settings(max_examples=15, deadline=None)
@given(st.sampled_from(sorted(LEVELS)), st.floats(0, 10), st.floats(0.01, 5), st.floats(1, 3))
def test_a_level_is_a_finding_exactly_beyond_its_threshold(name: str, level: float, most: float, more: float) -> None:
    lines = [{"kind": "train", "step": s, LEVELS[name]: level} for s in range(1, 13)]
    report = examine(CheckedRun("level", lines), {name: {"most": most, "worse": most * more}}, only=[name])
    # The mean of equal numbers may differ from them in the last bit.
    if abs(level - most) > 1e-9:
        assert bool(report.findings) == (level > most)
    if abs(level - most * more) > 1e-9 and report.findings:
        assert report.findings[0].severity == ("critical" if level > most * more else "warning")


def test_what_is_over_is_a_note_with_its_steps() -> None:
    run = logged({"reward/zero_variance_trained": lambda t: 0.9 if 0.3 < t < 0.6 else 0.2})
    (finding,) = findings(run)
    assert finding.severity == "note"
    assert finding.until is not None
    assert 18 < finding.step < finding.until <= 46


def test_low_entropy_is_fine_once_the_task_is_solved() -> None:
    over = {**PLANTED["entropy_collapse"], "reward/solved": 0.95}
    assert "entropy_collapse" not in {f.name for f in findings(logged(over))}


def test_longer_answers_are_fine_when_more_of_them_are_right() -> None:
    over = {**PLANTED["length_drift"], "reward/solved": lambda t: 0.3 + 0.5 * t}
    assert findings(logged(over)) == []


def test_form_that_is_not_rewarded_is_no_finding() -> None:
    over = {**PLANTED["form_over_substance"], "reward/shaped": 0.3, "reward/mean": 0.3}
    assert findings(logged(over)) == []


def test_a_fall_within_the_intervals_is_chance() -> None:
    assert findings(logged({"pass@1": lambda t: 0.5 - 0.1 * t})) == []


def test_a_detector_without_data_says_what_it_lacks() -> None:
    lines = [{"kind": "train", "step": s, "reward/mean": 0.5} for s in range(1, 30)]
    report = examine(CheckedRun("bare", lines))
    assert report.findings == report.healthy == ()
    assert set(report.not_checked) == set(detectors())
    assert "log-entropy" in report.not_checked["entropy_collapse"]
    short = examine(logged(steps=12), only=["entropy_collapse"])
    assert "needs 20 steps, there are 12" in short.not_checked["entropy_collapse"]
    assert all(
        "saved no forest" in why for name, why in examine(CheckedRun("empty")).not_checked.items() if name == "crashes"
    )


def test_thresholds_are_knobs_and_bad_ones_are_refused() -> None:
    run = logged(PLANTED["duplicates"])
    assert not examine(run, thresholds([("duplicates.most", 0.95)])).findings
    for setting, said in (
        (("duplicate.most", 1), "did you mean 'duplicates'"),
        (("duplicates.mots", 1), "did you mean 'most'"),
        (("duplicates.most", "much"), "is no threshold"),
        (("duplicates.window", 0), "whole number of steps"),
    ):
        with pytest.raises(RolltreeError, match=said):
            thresholds([setting])


@pytest.mark.parametrize("name", sorted(detectors()))
def test_every_lever_and_knob_exists(name: str) -> None:
    found = detectors()[name]
    for fix in found.fixes:
        _assert_exists(fix)
    assert set(found.thresholds) == set(found.knobs), "every threshold is explained"
    assert all(isinstance(value, int | float) for value in found.thresholds.values())
    assert "; " not in "".join(map(str, found.fixes)), "fixes are joined by it"


def _assert_exists(fix: Fix) -> None:
    if fix.kind == "recipe":
        assert fix.name in recipes()
    elif fix.kind == "knob":
        owner, _, knob = fix.name.partition(".")
        assert knob in knobs_of(owner)
    elif fix.kind == "correction":
        assert fix.name in CORRECTIONS
    elif fix.kind == "run":
        own = {f.name for arguments in (TrainArguments, DataFlags) for f in fields(arguments)}
        assert fix.name in {*known_fields(TrainConfig), *known_fields(Optim), *own}
    elif fix.kind == "serve":
        assert fix.name in {f.name for f in fields(ServeArguments)}
    elif fix.kind == "agent":
        assert fix.name in {f.name for f in fields(AgentLimits)}
    else:
        assert fix.kind == "work"
        assert not fix.name
    assert "rolltree." not in str(fix), "names of the command line, none that only Python knows"


@pytest.mark.parametrize(("why", "mend"), [
    ("the verifier: RewardCrashError: the reward rewards.py:f crashed on item 'a': KeyError: 'x' (rewards.py line 18)",
     "mend rewards.py line 18, then go on with --resume"),
    ("the environment failed 2x: ZeroDivisionError: division by zero (task.py:7 in step)",
     "mend task.py line 7, then go on with --resume"),
])  # fmt: skip
def test_a_crash_that_names_its_place_is_mended_there(why: str, mend: str) -> None:
    healthy = logged(PLANTED["crashes"])
    said = {"kind": "failures", "step": 60, "failed": 2, "leaves": 8, "why": why}
    run = replace(healthy, lines=[*healthy.lines, said])
    (crash,) = (f for f in findings(run) if f.name == "crashes")
    assert crash.fix == mend


def test_a_crash_without_a_place_says_how_the_run_goes_on() -> None:
    (crash,) = findings(logged(PLANTED["crashes"]))
    assert "mend what the message names, then go on with --resume" in crash.fix


def test_the_page_of_findings_is_that_of_the_code() -> None:
    page = Path(__file__).parents[2] / "docs" / "doctor.md"
    assert page.read_text(encoding="utf-8") == reference(), "run python -m rolltree.doctor.examination"
