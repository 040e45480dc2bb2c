"""Ways to draw examples: the same ones for one commit (`make test`), new ones (plain pytest), or more and new ones
(`make night`, which prints the seed)."""

import logging
import os
import re
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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what asks for the recipe of a paper that is not there; of a test over many names, that name alone."""
    from rolltree.recipe.registry import RECIPES

    of_test: dict[tuple[str, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("papers"):
            of_test.setdefault((str(item.path), getattr(item, "originalname", item.name)), []).append(item)
    for same in of_test.values():
        for name in (name for mark in same[0].iter_markers("papers") for name in mark.args):
            if name not in RECIPES.names():
                own = [item for item in same if re.search(rf"\b{name}\b", item.name.partition("[")[2])]
                for item in own or same:
                    item.add_marker(pytest.mark.skip(reason=f"the paper {name} is not installed"))


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
