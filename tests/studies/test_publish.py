"""Pages from finished tables: judged again as one family, written between marks, no sentence without its table."""

import json
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from rolltree.compare.trace import LabError
from studies.board import BoardSettings
from studies.board import main as board
from studies.map_figure import BAD, BEST
from studies.publish import BEGIN, END, PublishSettings, compact, main
from studies.stored_table import load
from tests.studies.test_board import Counting

GAINS = {"grpo": 0.2, "tis": 0.3, "icepop": 0.1}


@pytest.fixture
def asked(tmp_path):
    """A finished table, an empty README, one calibration."""
    board(
        BoardSettings("stability", seeds=6, lr=1e-4, rows=("tis", "icepop"), regimes=("stale2", "stale8"),
                      cache=tmp_path / "cache", out=tmp_path / "runs", kept=tmp_path / "kept"),
        Counting(GAINS, noise=0.002),
    )  # fmt: skip
    (tmp_path / "README.md").write_text(f"# Top\n\n{BEGIN}\nstale words\n{END}\n\n## Below\n")
    (tmp_path / "calibrated").mkdir()
    tried = [{"lr": 1e-4, "updates": n, "mean": m, "per_seed": [m, m]} for n, m in ((1, 0.5), (4, 0.61))]
    told = {"regime": "stale2", "baseline": "grpo", "chosen": {"lr": 1e-4, "updates": 4}, "tried": tried}
    (tmp_path / "calibrated/stale2.json").write_text(json.dumps(told))
    return PublishSettings(
        tmp_path / "runs", tmp_path / "docs", tmp_path / "README.md", tmp_path / "calibrated", tmp_path / "none",
        tmp_path / "preregistered",
    )  # fmt: skip


def test_one_command_fills_readme_tables_and_practice(asked):
    assert main(asked) == ["stability"]
    readme = asked.readme.read_text()
    assert readme.startswith(f"# Top\n\n{BEGIN}\n")
    assert readme.endswith(f"{END}\n\n## Below\n")
    assert "stale words" not in readme
    assert "](docs/measured/stability.svg)" in readme
    assert "| tis |" not in readme, "a map over two conditions is a figure"
    page = (asked.docs / "tables.md").read_text()
    assert "## The stability map: corrections of stale rollouts, by staleness and rate { #stability }" in page
    assert "| stale2 | **0.0001** | **4** | 61.0 % | 61.0, 61.0 |" in page
    again = readme, page
    main(replace(asked, runs=asked.runs / "gone"))
    assert (asked.readme.read_text(), (asked.docs / "tables.md").read_text()) == again, "what is stored is enough"


def test_a_map_shows_every_cell_and_frames_what_is_told_apart(asked):
    main(asked)
    figure = ElementTree.parse(asked.docs / "stability.svg").getroot()
    space = "{http://www.w3.org/2000/svg}"
    fields = [r.get("stroke") for r in figure.iter(f"{space}rect") if r.get("rx")]
    assert fields == [None] * 4 + [BEST] * 4 + [BAD] * 4, "the baseline, tis ahead, icepop behind"
    texts = ["".join(text.itertext()) for text in figure.iter(f"{space}text")]
    for words in ("rate × 1", "rate × 4", "stale2", "stale8", "tis", "icepop", "ppo-clip", "18"):
        assert words in texts
    (apart,) = {t for t in texts if t.startswith("+")}
    table = load(asked.runs / "stability.json")
    cell = table.at("tis", table.columns[0])
    assert float(apart) == pytest.approx(100 * cell.test.effect.estimate, abs=0.1)
    words = compact(table)
    (tis,) = [line for line in words.splitlines() if line.startswith("| tis |")]
    assert tis.count(", holds") == 4
    assert tis.endswith("| 18 |")


def test_what_was_confirmed_is_told_beside_the_tables(asked):
    main(asked)
    assert "onfirmations" not in (asked.docs / "tables.md").read_text(), "nothing was asked again"
    asked.preregistered.mkdir()
    claims = [{"label": "tis", "verdict": "holds", "seeds": 8, "differences": [0.2, 0.202] * 4, "collapsed": 1},
              {"label": "icepop", "verdict": "open", "seeds": 8, "differences": [-0.02, 0.0] * 4}]  # fmt: skip
    told = {"preregistered": "0123456789ab", "regime": "stale8", "least": 0.04, "looks": [8, 14, 20], "claims": claims}
    (asked.preregistered / "stale8-corrections.result.json").write_text(json.dumps(told))
    main(asked)
    table = (asked.docs / "tables.md").read_text()
    (tis,) = (line for line in table.splitlines() if line.startswith("| stale8 | tis | +20.1 (+"))
    assert tis.endswith(" | 8 of 20 | 1 | holds | `01234567` |"), "with its interval, and what collapsed"
    (icepop,) = (line for line in table.splitlines() if line.startswith("| stale8 | icepop | -1.0 (-"))
    assert icepop.endswith(" | 8 of 20 | – | open | `01234567` |")
    words = "on 8 fresh seeds, `stale8` at the calibrated rate: "
    words += "holds: tis (+20.1 points); not decided yet: icepop (-1.0 points)."
    assert words in asked.readme.read_text()
    assert words in (asked.docs / "practice.md").read_text()


def test_sentences_are_those_of_tables_that_stand(asked):
    main(asked)
    told = (asked.docs / "practice.md").read_text()
    lines = [line for line in told.splitlines() if line[:1].isdigit()]
    assert all(line.endswith(")") and "[Table](" in line for line in lines)
    assert "the same baseline ends between 50.0 and 61.0 % on `stale2` (best at 0.0001, 4)." in told
    assert ", rate × 1: `stale2`: better tis (+" in told
    assert " Rate × 4: `stale2`: better tis (+" in told
    assert "worse icepop (-" in told
    assert "Credits" not in told, "no table of credits is stored"
    assert len(lines) == 1 + 1, "one for the calibration, one for the table"


def test_nothing_is_ahead_of_a_baseline_that_collapsed(asked):
    path = asked.runs / "stability.json"
    raw = json.loads(path.read_text())
    for name, cell in raw.items():
        if name.endswith("/ ppo-clip") and "rate × 4" in name:
            cell["collapsed"] = 4.0
    path.write_text(json.dumps(raw))
    main(asked)
    told = (asked.docs / "practice.md").read_text()
    assert "Rate × 4: `stale2`: no verdict, because the baseline collapsed; without a collapse tis, icepop." in told
    page = (asked.docs / "tables" / "stability.md").read_text()
    calm, hot = page.partition("## stale2, rate × 4")[::2]
    assert "| holds |" in calm
    hot = hot.partition("Costs")[0]
    assert hot.count("| void: the baseline collapsed |") == 2, "the page that was stored is brought up to the rule"
    assert "| holds |" not in hot


def test_the_stored_verdicts_are_those_of_the_table_itself(asked):
    table = load(asked.runs / "stability.json")
    page = (asked.runs / "stability.md").read_text()
    for cell in table.cells:
        if cell.test is not None:
            e = cell.test.effect
            assert f"{100 * e.estimate:+.1f} ({100 * e.low:+.1f} to {100 * e.high:+.1f})" in page
            assert f"| {cell.verdict} |" in page


def test_what_cannot_be_read_is_one_sentence(asked):
    (asked.runs / "stability.json").write_text('{"stale2 / tis": {}}')
    with pytest.raises(LabError, match=r"studies\.board stability"):
        load(asked.runs / "stability.json")
    asked.readme.write_text("# no marks")
    (asked.runs / "stability.json").unlink()
    with pytest.raises(LabError, match="between which the tables go"):
        main(asked)
