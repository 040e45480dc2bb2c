"""The procedure that confirms claims keeps its promises, in a small form of `python -m studies.power`."""

import json
from pathlib import Path

from studies.lab.places import EVIDENCE, all_in_folders
from studies.power import PowerSettings, main, page, rates

COMMITTED = Path(__file__).parents[2] / "docs" / "measured"


def test_false_holds_are_rare_and_effects_are_found():
    settings = PowerSettings(trials=60, methods=12)
    nothing = rates(settings, "collapses", 0, 0.0)
    assert nothing.false_holds <= 0.05 + 3.5 * (0.05 * 0.95 / 60) ** 0.5
    some = rates(settings, "normal", 3, 4.0)
    assert some.power >= 0.8
    assert some.false_holds <= 0.05 + 3.5 * (0.05 * 0.95 / 60) ** 0.5
    assert some.seeds < 20, "looks end confirmations early"


def test_families_are_as_large_as_the_evidence():
    stored = [*EVIDENCE.glob("*.json"), *all_in_folders("evidence.json").values()]
    kinds = [json.loads(path.read_text())["kind"] for path in stored]
    settings = PowerSettings()
    assert (settings.entries, settings.checks) == (kinds.count("training"), len(kinds) - kinds.count("training"))


def test_the_page_says_what_was_simulated(tmp_path):
    found = main(PowerSettings(trials=2, methods=6, true=2, out=tmp_path))
    assert (tmp_path / "error-rates.md").read_text() == page(PowerSettings(trials=2, methods=6, true=2), found)
    assert len(json.loads((tmp_path / "error-rates.json").read_text())) == len(found)


def test_the_committed_numbers_keep_the_promises():
    """False claims are rare under any noise. The stated effect, four points, is found where runs do not collapse."""
    rows = json.loads((COMMITTED / "error-rates.json").read_text())
    assert {r["noise"] for r in rows} == {"normal", "heavy", "collapses"}
    assert all(r["false_holds"] <= 0.05 for r in rows)
    stated = {(r["procedure"], r["noise"]): r["power"] for r in rows if r["true"] and r["effect"] == 4.0}
    assert {procedure for procedure, _ in stated} == {"study", "entries", "checks"}
    assert all(power >= 0.8 for (_, noise), power in stated.items() if noise != "collapses")
