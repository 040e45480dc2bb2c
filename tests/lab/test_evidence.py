"""Evidence: made by running, repeated by `verify`, and no longer standing once claim, code or file changed."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from rolltree.cli import main as command
from rolltree.compare.regimes import REGIMES, Calibrated
from rolltree.compare.stats import paired_interval
from rolltree.compare.trace import LabError
from rolltree.errors import RolltreeError
from rolltree.recipe.recipe import Evidence
from rolltree.recipe.registry import load_recipe, recipes
from studies.lab import claim as claim_module
from studies.lab.claim import Claim, Measured, claim_of, claims
from studies.lab.entry import SeedResult, load_entries, load_entry, save_entry
from studies.lab.entry_family import confirmed, handed_on, together
from studies.lab.evidence import FRESH, accept, confirm, following, forged, measure, problems, verify
from studies.lab.evidence_command import EvidenceConfig, main
from studies.lab.evidence_pages import found, fresh_seeds, overview
from studies.lab.places import EVIDENCE
from tests.lab.simulated import Simulated

HERE = "tests.lab.test_evidence"


def exact(seed: int) -> Measured:
    return Measured(0.25, 0.5, {"method": ([0.0, 1.0], [0.1, 0.25])})


def noisy(seed: int) -> Measured:
    return Measured(1.0 + 0.01 * (seed % 3), 0.9, {"noisy": ([0.0, 1.0], [0.9, 1.0])})


def made_of(**asked) -> Claim:
    question = Evidence(**{"metric": "pass@1", "baseline": "grpo", **asked})
    return Claim(replace(load_recipe("rloo").card, evidence=question), question)


def training(**asked) -> Claim:
    return made_of(**{"task": "countdown", "budget": 10_000, "seeds": 4, **asked})


def quiet():
    return Console(file=io.StringIO(), width=160)


def test_training_evidence_is_a_comparison_at_equal_budget(tmp_path):
    entry = measure(training(least=0.02), Simulated({"grpo": 0.1, "rloo": 0.25}), tmp_path, quiet())
    assert entry.outcome == "holds"
    assert entry.kind == "training"
    assert [r.seed for r in entry.results] == [0, 1, 2, 3]
    assert entry.effect.estimate == pytest.approx(0.15, abs=0.03)
    assert set(entry.results[0].curves) == {"grpo", "rloo"}
    assert {"Rloo", "Grpo"} <= entry.sources.keys()


def test_a_lost_claim_is_stored_as_lost(tmp_path):
    entry = measure(training(least=0.05), Simulated({"grpo": 0.3, "rloo": 0.1}), tmp_path, quiet())
    assert entry.outcome == "worse"
    assert "worse than" in entry.words


def test_exact_and_simulated_checks():
    lower = made_of(metric="bias", direction="lower", least=0.1, seeds=1, check=f"{HERE}:exact")
    entry = measure(lower, Simulated({}), None)
    assert (entry.kind, entry.outcome, entry.effect.estimate) == ("exact", "holds", -0.25)
    assert "exact, no randomness" in entry.words
    simulated = measure(made_of(metric="gain", seeds=5, check=f"{HERE}:noisy"), Simulated({}), None)
    assert (simulated.kind, simulated.outcome) == ("simulated", "holds")


def test_files_are_read_back_whole(tmp_path):
    entry = measure(training(), Simulated({"grpo": 0.1, "rloo": 0.25}), tmp_path, quiet())
    save_entry(entry, tmp_path / "evidence")
    assert load_entry("rloo", tmp_path / "evidence") == entry
    assert load_entries(tmp_path / "evidence") == [entry]
    assert load_entry("grpo", tmp_path / "evidence") is None
    told = overview([entry])
    assert "| [rloo](../recipes/rloo.md) | higher pass@1 than grpo" in told
    assert f"| {entry.outcome} |" in told
    assert entry.words in found(entry)
    assert "Not measured yet" in found(None)


def test_verify_repeats_a_seed(tmp_path):
    runner = Simulated({"grpo": 0.1, "rloo": 0.25})
    entry = measure(training(), runner, tmp_path, quiet())
    runs = len(runner.made)
    assert verify(training(), entry, runner, 2).reproduced
    assert len(runner.made) == runs + 2, "finished runs must not be looked up"
    assert "not in the stored" in verify(training(), entry, runner, 77).words


def test_verify_finds_invented_numbers(tmp_path):
    runner = Simulated({"grpo": 0.1, "rloo": 0.12})
    entry = measure(training(), runner, tmp_path, quiet())
    invented = replace(entry, results=tuple(replace(r, value=r.value + 0.1) for r in entry.results))
    assert not verify(training(), invented, runner).reproduced
    check = made_of(metric="gain", seeds=5, check=f"{HERE}:noisy")
    stored = measure(check, runner, tmp_path)
    forged = replace(stored, results=(replace(stored.results[0], value=2.0), *stored.results[1:]))
    assert not verify(check, forged, runner).reproduced


def test_elsewhere_a_seed_must_lie_where_one_more_would(tmp_path):
    claim, runner = training(seeds=5), Simulated({"grpo": 0.1, "rloo": 0.25}, noise=0.02)
    entry = replace(measure(claim, runner, tmp_path, quiet()), versions={"torch": "1.0"})
    moved = replace(entry, results=tuple(replace(r, value=r.value + 1e-4) for r in entry.results))
    assert verify(claim, moved, runner).reproduced
    far = replace(entry, results=tuple(replace(r, value=r.value + 0.5) for r in entry.results))
    assert not verify(claim, far, runner).reproduced


def test_a_check_that_moves_asks_the_same(tmp_path):
    claim = made_of(metric="gain", seeds=5, check=f"{HERE}:noisy")
    entry = measure(claim, Simulated({}), tmp_path, quiet())
    moved = replace(entry, question={**entry.question, "check": "studies.of_before:noisy"})
    assert problems(claim, moved) == []
    assert following(claim.card, entry, moved).earlier == ()
    other = replace(entry, question={**entry.question, "check": f"{HERE}:exact"})
    assert "asks something else (check)" in problems(claim, other)[0]


def test_what_makes_evidence_fall(tmp_path):
    claim = training()
    entry = measure(claim, Simulated({"grpo": 0.1, "rloo": 0.25}), tmp_path, quiet())
    assert problems(claim, entry) == []
    assert "no evidence is stored" in problems(claim, None)[0]
    assert "asks something else (least)" in problems(training(least=0.3), entry)[0]
    other = {**entry.sources, "Rloo": "0" * 16}
    assert "Rloo changed" in problems(claim, replace(entry, sources=other))[0]
    flattering = replace(entry, words="holds: trust me")
    assert "not that of the stored runs" in problems(claim, flattering)[0]
    assert forged(claim, flattering)
    assert forged(claim, replace(entry, sources=other)) == [], "old is not false"
    assert problems(claim, accept(claim, replace(entry, sources=other))) == []


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"seeds": 1, "task": "countdown", "budget": 5}, "two seeds or more"),
        ({"seeds": 3}, "neither a check nor a regime"),
        ({"check": "rolltree.nowhere:f", "seeds": 1}, "cannot be found"),
        ({"check": f"{HERE}:missing", "seeds": 1}, "cannot be found"),
        ({"check": HERE, "seeds": 1}, "module:function"),
    ],
)
def test_cards_that_cannot_be_run_are_named(asked, says, tmp_path):
    with pytest.raises(LabError, match=says):
        measure(made_of(**asked), Simulated({"grpo": 0.1, "rloo": 0.1}), tmp_path, quiet())


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / "rloo.json").write_text('{"format": 9}')
    with pytest.raises(LabError, match=r"rloo.json.*format 9"):
        load_entry("rloo", tmp_path)
    (tmp_path / "rloo.json").write_text("{")
    with pytest.raises(LabError, match="run `rolltree evidence rloo` again"):
        load_entry("rloo", tmp_path)


def test_the_command(tmp_path, monkeypatch, capsys):
    claim = training()
    monkeypatch.setattr("studies.lab.evidence_command.claim_of", lambda name: claim)
    runner, base = Simulated({"grpo": 0.1, "rloo": 0.25}), EvidenceConfig(
        ("rloo",), folder=tmp_path / "evidence", cache=tmp_path / "cache"
    )  # fmt: skip
    assert main(replace(base, list=True), runner, quiet()) == 1
    assert main(base, runner, quiet()) == 0
    assert main(replace(base, list=True), runner, quiet()) == 0
    runs = len(runner.made)
    assert main(replace(base, json=True), runner, quiet()) == 0
    assert len(runner.made) == runs, "evidence that stands is not made again"
    assert json.loads(capsys.readouterr().out)[0]["outcome"] == "holds"

    stored = load_entry("rloo", base.folder)
    save_entry(replace(stored, sources={}), base.folder)
    assert main(replace(base, verify=True), runner, quiet()) == 0
    assert load_entry("rloo", base.folder) == stored, "reproduced under other code: accepted"
    runner.gains = {"grpo": 0.1, "rloo": 0.1}
    assert main(replace(base, verify=True), runner, quiet()) == 1
    assert main(EvidenceConfig(list=True, folder=base.folder), runner, quiet()) in (0, 1)
    with pytest.raises(LabError, match="--all"):
        main(EvidenceConfig(), runner, quiet())


def test_what_was_tried_and_dropped_is_kept_and_counted(tmp_path, monkeypatch):
    runner, base = Simulated({"grpo": 0.1, "rloo": 0.25}), EvidenceConfig(
        ("rloo",), again=True, folder=tmp_path / "evidence", cache=tmp_path / "cache"
    )  # fmt: skip
    stored = []
    for asked in (training(), training(), training(task="chained"), training(seeds=5)):
        monkeypatch.setattr("studies.lab.evidence_command.claim_of", lambda name, asked=asked: asked)
        assert main(base, runner, quiet()) == 0
        stored.append(load_entry("rloo", base.folder))
    assert [len(e.earlier) for e in stored] == [0, 0, 1, 2], "the very same answer twice is one"
    assert [(a.question["task"], a.seeds, a.outcome) for a in stored[-1].earlier] == [
        ("countdown", 4, "holds"), ("chained", 4, "holds"),
    ]  # fmt: skip
    assert stored[-1].earlier[0].effect == stored[0].effect
    page = overview([stored[-1]])
    assert "Tried and dropped, each by its own interval: 2 earlier answers of 1 entries (2 × holds)." in page
    assert "| higher pass@1 than grpo, chained, 10k tokens, 4 seeds |" in page
    out = quiet()
    main(replace(base, list=True), runner, out)
    assert "2 earlier answers" in " ".join(out.file.getvalue().split())


@pytest.fixture
def in_a_regime(monkeypatch):
    """A claim in the regime `fresh`, with a rate of its own."""
    rate = {"fresh": Calibrated(3e-4, 2)}
    monkeypatch.setattr("rolltree.compare.regimes.calibrated", lambda name: rate[name])
    return rate, made_of(task="regime:fresh", seeds=4)


def test_a_claim_in_a_regime_is_asked_as_its_tables_are(tmp_path, in_a_regime):
    rate, claim = in_a_regime
    assert claim.conditions() == REGIMES["fresh"].conditions()
    assert {dict(arm.knobs)["optim.lr"] for arm in claim.sides()} == {3e-4}
    runner = Simulated({"grpo": 0.1, "rloo": 0.25})
    entry = measure(claim, runner, tmp_path / "one", quiet(), kept=tmp_path / "kept")
    again = measure(claim, runner, tmp_path / "another machine", quiet(), kept=tmp_path / "kept")
    assert len(runner.made) == 8, "what is kept is not made again"
    assert again.effect == entry.effect
    assert problems(claim, entry) == []
    assert "regime [fresh](../howto/regimes.md), 120k tokens" in found(entry)
    rate["fresh"] = Calibrated(1e-4, 2)
    assert "regime:fresh changed" in problems(claim, entry)[0]


def test_a_regime_that_is_none_is_refused(tmp_path):
    with pytest.raises(RolltreeError, match="frsh"):
        measure(made_of(task="regime:frsh", seeds=4), Simulated({"grpo": 0.1, "rloo": 0.1}), tmp_path, quiet())


def test_what_holds_is_asked_again_on_fresh_seeds(tmp_path):
    runner = Simulated({"grpo": 0.1, "rloo": 0.25})
    entry = measure(training(), runner, tmp_path, quiet())
    sure = confirm(training(), entry, runner, tmp_path, quiet())
    assert sure.confirmation is not None
    assert [r.seed for r in sure.confirmation.results] == list(range(FRESH, FRESH + 14))
    assert replace(sure, confirmation=None) == entry
    assert confirmed([sure, entry])["rloo"].outcome == "holds"
    save_entry(sure, tmp_path)
    assert load_entry("rloo", tmp_path) == sure
    assert f"**On fresh seeds**: {sure.confirmation.words}" in found(sure)
    lucky = replace(sure, confirmation=replace(sure.confirmation, words="holds: again"))
    assert forged(training(), lucky)


@pytest.mark.papers("ace", "dars")
def test_an_open_claim_that_looks_ahead_is_handed_on_and_one_that_does_not_is_not(tmp_path):
    entry = measure(training(), Simulated({"grpo": 0.1, "rloo": 0.25}), tmp_path, quiet())

    def open_(name, differences):
        rows = tuple(SeedResult(s, 0.4 + d, 0.4) for s, d in enumerate(differences))
        effect = paired_interval([r.value for r in rows], [r.baseline for r in rows])
        return replace(entry, name=name, results=rows, effect=effect, outcome="no difference found")

    family = [entry, open_("tis", (0.2, -0.02, 0.3, -0.05)), open_("gpg", (0.2, -0.2, 0.1, -0.15)),
              replace(open_("ace", (0.03, -0.01, 0.02, -0.005)), outcome="no effect above x")]  # fmt: skip
    # Checks are another family, whose claims are handed on by the same rule.
    family.append(replace(open_("dars", (0.2, -0.02, 0.3, -0.05)), kind="simulated"))
    verdicts = together(family)
    assert {verdicts[name].outcome for name in ("tis", "gpg", "dars")} == {"no difference found"}
    assert handed_on(family, verdicts) == ["rloo", "tis", "dars"]
    assert fresh_seeds("tis", ["rloo", "tis"], {}) == "not asked yet"
    assert fresh_seeds("gpg", ["rloo", "tis"], {}) == "–"


def test_a_check_is_asked_again_on_more_fresh_seeds_than_training(tmp_path):
    claim = made_of(metric="score", baseline="plain", least=0.01, seeds=3, check=f"{HERE}:noisy")
    entry = measure(claim, Simulated({}), tmp_path)
    made = confirm(claim, entry, Simulated({}), tmp_path).confirmation
    assert made is not None
    assert [r.seed for r in made.results] == list(range(FRESH, FRESH + 24))
    assert entry.results[0].curves
    assert not any(r.curves for r in made.results), "drawn once; kept again they are most of a file"


def test_only_what_holds_and_stands_waits_for_a_confirmation(tmp_path):
    runner = Simulated({"grpo": 0.3, "rloo": 0.1})
    lost = measure(training(), runner, tmp_path, quiet())
    with pytest.raises(LabError, match="its verdict is 'worse'"):
        confirm(training(), lost, runner, tmp_path)
    runner.gains = {"grpo": 0.1, "rloo": 0.25}
    entry = measure(training(), runner, tmp_path / "anew", quiet())
    with pytest.raises(LabError, match="asks something else"):
        confirm(training(budget=20_000), entry, runner, tmp_path)
    lower = made_of(metric="bias", direction="lower", least=0.1, seeds=1, check=f"{HERE}:exact")
    with pytest.raises(LabError, match="it is exact"):
        confirm(lower, measure(lower, runner, tmp_path), runner, tmp_path)


def test_the_command_confirms_what_waits_once(tmp_path, monkeypatch, capsys):
    claim, runner = training(), Simulated({"grpo": 0.1, "rloo": 0.25})
    monkeypatch.setattr("studies.lab.evidence_command.claims", lambda: [claim])
    base = EvidenceConfig(all=True, folder=tmp_path / "evidence", cache=tmp_path / "cache")
    listed = replace(base, all=False, list=True, json=True)
    main(base, runner, quiet())
    main(listed, runner, quiet())
    assert json.loads(capsys.readouterr().out)["entries"][0]["fresh_seeds"] == "not asked yet"
    assert main(replace(base, all=False, confirm=True), runner, quiet()) == 0
    runs = len(runner.made)
    assert main(replace(base, all=False, confirm=True), runner, quiet()) == 0
    assert len(runner.made) == runs
    main(listed, runner, quiet())
    assert json.loads(capsys.readouterr().out)["entries"][0]["fresh_seeds"] == "holds"


def test_of_all_claims_those_are_left_out_whose_regime_waits_for_its_calibration(tmp_path, monkeypatch):
    asked = [made_of(task="regime:sql", seeds=2), training()]
    monkeypatch.setattr("studies.lab.evidence_command.claims", lambda: asked)
    monkeypatch.setattr("studies.lab.claim.is_calibrated", lambda name: False)
    base, told = EvidenceConfig(all=True, folder=tmp_path / "evidence", cache=tmp_path / "cache"), quiet()
    assert main(base, Simulated({"grpo": 0.1, "rloo": 0.25}), told) == 1
    assert "`python -m studies.calibrate sql`" in told.file.getvalue()  # type: ignore[attr-defined]
    assert load_entry("rloo", base.folder).outcome == "holds"


def test_a_confirmation_that_is_lost_is_stored_and_told(tmp_path, monkeypatch):
    claim, runner = training(), Simulated({"grpo": 0.1, "rloo": 0.25})
    monkeypatch.setattr("studies.lab.evidence_command.claims", lambda: [claim])
    base = EvidenceConfig(all=True, folder=tmp_path / "evidence", cache=tmp_path / "cache")
    main(base, runner, quiet())
    runner.gains = {"grpo": 0.1, "rloo": 0.1}
    assert main(replace(base, all=False, confirm=True), runner, quiet()) == 1
    stored = load_entry("rloo", base.folder)
    assert (stored.outcome, stored.confirmation.outcome) == ("holds", "no difference found")


def test_an_agent_plays_the_tasks_of_claims_in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("studies.lab.evidence_command.claim_of", lambda name: training())
    heard = []

    class Heard(Simulated):
        def run(self, spec, folder, tick):
            heard.append(spec.conditions.task)
            return super().run(spec, folder, tick)

    base = EvidenceConfig(("rloo",), agent="python a.py", folder=tmp_path / "e", cache=tmp_path / "c")
    main(base, Heard({"grpo": 0.1, "rloo": 0.25}), quiet())
    (task,) = set(heard)
    assert task.startswith("agent:python a.py?task=")
    for wrong in (replace(base, names=(), all=True), replace(base, folder=Path("evidence"))):
        with pytest.raises(LabError, match="in a folder of its own"):
            main(wrong, Heard({}), quiet())


def test_recipes_have_cards_and_evidence_has_the_verdict_of_its_runs():
    """Fails when a recipe has no card, or a stored verdict is not what its runs say; age is a release check."""
    for name, recipe in recipes().items():
        assert recipe.card.name == name
        assert recipe.card.claim
        assert recipe.card.paper
    folder = EVIDENCE
    made = {claim.name: claim for claim in claims() if claim.complete}
    stored = load_entries(folder)
    assert {entry.name for entry in stored} <= set(made), "evidence of recipes that claim nothing"
    assert [p for entry in stored for p in forged(made[entry.name], entry)] == []


def test_a_recipe_without_claim_says_so():
    silent = next(name for name, recipe in recipes().items() if recipe.card.evidence is None)
    with pytest.raises(LabError, match=f"{silent}.*names no evidence"):
        claim_of(silent)


def test_a_run_that_rounding_parted_must_begin_as_it_is_stored(tmp_path):
    runner = Simulated({"grpo": 0.1, "rloo": 0.25})
    entry = measure(training(), runner, tmp_path, quiet())

    def parted(at: int):
        first = entry.results[0]
        curves = {k: (x, [v if i < at else v + 0.01 for i, v in enumerate(y)]) for k, (x, y) in first.curves.items()}
        return replace(entry, results=(replace(first, value=first.value + 0.01, curves=curves), *entry.results[1:]))

    late, soon = parted(5), parted(4)
    assert verify(training(), late, runner).reproduced
    assert "the first 5 of" in verify(training(), late, runner).words
    assert not verify(training(), soon, runner).reproduced, "another beginning is other code"


@pytest.mark.papers("portool")
def test_an_installed_package_says_that_evidence_needs_a_checkout(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(claim_module, "ROOT", tmp_path / "site-packages" / "rolltree")
    monkeypatch.chdir(tmp_path)
    for words in (["--all"], ["--list"], ["portool"]):
        assert command(["evidence", *words]) == 2
        told = capsys.readouterr().err
        assert "evidence is made in a checkout of Rolltree's source" in told
        assert len(told.splitlines()) == 1
