"""Filters as one types them: `reward<0.5 leaves>=8 finish:length words to find`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolltree.analysis.source import ViewError
from rolltree.errors import unknown
from rolltree.tree.shape import Floats

_PART = re.compile(r'"([^"]*)"|(\S+)')
_TEST = re.compile(r"^([A-Za-z_][\w.\-]*)(<=|>=|!=|<|>|=|:)(.+)$")
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "=": operator.eq, ":": operator.eq,
    "!=": operator.ne,
}  # fmt: skip


@dataclass(frozen=True)
class Test:
    """A condition on a named quantity."""

    name: str
    sign: str
    value: str


@dataclass(frozen=True)
class Query:
    """Conditions that must all hold, and words that must all occur."""

    tests: tuple[Test, ...]
    words: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.tests or self.words)


def parse(text: str) -> Query:
    """Split what was typed; words in double quotes are looked for as they stand."""
    tests: list[Test] = []
    words: list[str] = []
    for quoted, bare in _PART.findall(text):
        found = _TEST.match(bare) if bare else None
        if found:
            tests.append(Test(*found.groups()))
        elif quoted or bare:
            words.append((quoted or bare).casefold())
    return Query(tuple(tests), tuple(words))


def passes(
    tests: Sequence[Test], count: int, numbers: Mapping[str, Callable[[], Floats]],
    words: Mapping[str, Callable[[], tuple[NDArray[np.int64], list[str]]]],
) -> NDArray[np.bool_]:  # fmt: skip
    """Which of some rows pass all tests on their numbers and words; quantities are computed only when asked for."""
    keep = np.ones(count, np.bool_)
    for test in tests:
        if test.name in numbers:
            with np.errstate(invalid="ignore"):
                keep &= _COMPARE[test.sign](numbers[test.name](), _number(test))
        elif test.name in words:
            codes, known = words[test.name]()
            if test.sign not in ("=", ":", "!="):
                raise ViewError(f"{test.name} is a word, not a number: write {test.name}:{test.value}")
            same = np.array([test.value.casefold() in word.casefold() for word in known] + [False])[codes]
            keep &= ~same if test.sign == "!=" else same
        else:
            raise unknown("quantity", test.name, [*numbers, *words], "put words with a colon or a sign in quotes")
    return keep


def _number(test: Test) -> float:
    try:
        return float(test.value)
    except ValueError:
        raise ViewError(f"{test.name}{test.sign}{test.value}: {test.value!r} is not a number") from None
