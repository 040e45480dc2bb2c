"""The measured page says what its numbers say, and the numbers are what the simulation gives."""

from pathlib import Path

from studies.clock.page import read_rows, write_page
from studies.clock.study import Size, sizes
from studies.clock.systems import read, write

MEASURED = Path(__file__).parents[3] / "docs" / "measured"


def test_the_page_follows_from_its_numbers(tmp_path):
    write_page(tmp_path, read_rows(MEASURED / "scheduling.json"))
    for name in ("scheduling.md", "scheduling.json", "scheduling.svg"):
        assert (tmp_path / name).read_text() == (MEASURED / name).read_text(), name


def test_recorded_runs_are_repeated_exactly():
    recorded = {(r.arm, r.distribution, r.engines, r.seed): r.outcome for r in read_rows(MEASURED / "scheduling.json")}
    for row in sizes(lambda _: None, [Size(1, 12, 1, ("sync", "april", "areal"))]):
        assert recorded[row.arm, row.distribution, row.engines, row.seed] == row.outcome


def test_the_page_of_systems_follows_from_its_numbers(tmp_path):
    write(tmp_path, *read(MEASURED / "systems.json"))
    for name in ("systems.md", "systems.json"):
        assert (tmp_path / name).read_text() == (MEASURED / name).read_text(), name
