"""The short form of every attack, and the frame that runs and counts them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tests.attack.frame import Attack, BrokenPromiseError, Count, attack
from tests.attack.registry import attacks

ON_RAY = ("ray", "ray-drivers")
"""Their short form is part of `make test-ray`."""


@pytest.mark.parametrize("name", [name for name in attacks() if name not in ON_RAY])
def test_short(name: str) -> None:
    what = attacks()[name]
    assert what.short
    bad = [case for case in attack(what, 0, range(what.short)) if case.bad]
    assert not bad, "\n".join(f"case {case.number}: {case.outcome}" for case in bad)


def odd(rng: random.Random, place: Path) -> str:
    (place / "file").write_text("x")
    number = rng.randrange(10)
    if number % 2:
        raise BrokenPromiseError(f"{number} is odd")
    return "even" if number else str(1 // number)


def test_a_case_is_its_seed_and_number_and_what_it_raises_is_bad() -> None:
    what = Attack("odd", "", odd, 1, 1)
    count = Count()
    for case in attack(what, 7, range(40)):
        count.add(case)
        (again,) = attack(what, 7, [case.number])
        assert (again.outcome, again.bad) == (case.outcome, case.bad)
        assert ("odd" in case.outcome or "ZeroDivisionError" in case.outcome) == case.bad
    assert count.cases == 40
    assert 0 < len(count.bad) < 40
    assert set(count.outcomes) == {"even"}


def test_an_attack_that_was_stopped_goes_on_and_tries_bad_cases_again(tmp_path: Path) -> None:
    what, log, ran = Attack("odd", "", odd, 1, 1), tmp_path / "odd.jsonl", list[int]()

    def seen(rng: random.Random, place: Path) -> str:
        ran.append(1)
        return odd(rng, place)

    first = list(attack(what, 0, range(10), log))
    log.write_text(log.read_text() + '{"attack": "od')
    second = list(attack(Attack("odd", "", seen, 1, 1), 0, range(15), log))
    assert [(c.outcome, c.bad) for c in second[:10] if not c.bad] == [(c.outcome, c.bad) for c in first if not c.bad]
    assert len(ran) == 5 + sum(case.bad for case in first)
    assert len([line for line in log.read_text().splitlines() if _whole(line)]) == 10 + len(ran)


def _whole(line: str) -> bool:
    try:
        return bool(json.loads(line))
    except ValueError:
        return False
