"""A test that is skipped for want of a program must not go by unseen."""

from types import SimpleNamespace

from conftest import pytest_terminal_summary


def test_what_was_skipped_for_want_of_a_program_is_said_at_the_end():
    lines: list[str] = []

    def skipped(why: str) -> SimpleNamespace:
        return SimpleNamespace(longrepr=("tests/view/conftest.py", 1, f"Skipped: {why}"))

    need = "browser tests need Chromium on the path: apt install chromium"
    stats = {"skipped": [skipped(need), skipped(need), skipped("slow on purpose"), skipped("could not import 'mcp'")]}
    pytest_terminal_summary(SimpleNamespace(stats=stats, write_line=lambda line, **_: lines.append(line)))
    assert lines == [
        f"NOT CHECKED: 2 tests were skipped: {need}", "NOT CHECKED: 1 tests were skipped: could not import 'mcp'"
    ]  # fmt: skip
