"""Ways to draw examples: the same ones for one commit (`make test`), new ones (plain pytest), or more and new ones
(`make night`, which prints the seed)."""

import logging
import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings

if "ROLLTREE_TESTS_ON_CARD" not in os.environ:
    # Tests say what the processor computes, to the last digit in places; what a card computes is asked by `make gpu`.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ["HIP_VISIBLE_DEVICES"] = ""

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("night", max_examples=300, deadline=None, print_blob=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say in one line each what was not checked because something is not installed here, and how many tests that is."""
    told = [r.longrepr[2] for r in terminalreporter.stats.get("skipped", ()) if isinstance(r.longrepr, tuple)]
    for reason, count in Counter(
        why.removeprefix("Skipped: ") for why in told if "install" in why or "could not import" in why
    ).items():
        terminalreporter.write_line(f"NOT CHECKED: {count} tests were skipped: {reason}", red=True)


@pytest.fixture
def pair() -> Any:
    """One fixed pair of a packed batch and the same paths written out, for objectives."""
    from rolltree.testing.objective import random_pair

    return random_pair(0)


@pytest.fixture
def engine_log(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The logger of engines, as it is in a program. Libraries of other tests configure logging for the whole process,
    and silence loggers that existed before."""
    logger = logging.getLogger("rolltree.engine")
    for each in (logger, logging.getLogger("rolltree")):
        monkeypatch.setattr(each, "disabled", False)
        monkeypatch.setattr(each, "propagate", True)
        monkeypatch.setattr(each, "level", logging.NOTSET)
    monkeypatch.setattr(logging.root.manager, "disable", 0)
    logger.manager._clear_cache()  # type: ignore[attr-defined]
    return logger
