"""Knobs that vary: what each text means at each step, what is refused, and where schedules are found."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolltree.errors import RolltreeError
from rolltree.knobs.varying import OVER, corners, schedule, schedules, settled
from rolltree.recipe.registry import RECIPES, load_recipe
from rolltree.training.config import TrainConfig


def at(text: str, step: int, **told: float) -> object:
    found = schedule(text)
    assert found is not None
    return found.at(step, told)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("0.2->1 over 100", {0: 0.2, 50: 0.6, 100: 1.0, 1000: 1.0}),
        ("0.2 -> 1 over 100 after 50", {0: 0.2, 50: 0.2, 100: 0.6, 150: 1.0}),
        ("0.5->10->0.5 over 200", {0: 0.5, 100: 10.0, 150: 5.25, 200: 0.5}),
        ("-1e-4->0 over 10", {0: -1e-4, 5: -5e-5, 10: 0.0}),
        ("1, 0.75 at 100, 0.5 at 200", {0: 1, 99: 1, 100: 0.75, 199: 0.75, 200: 0.5}),
        ("mixed, fresh at 3", {2: "mixed", 3: "fresh"}),
        ("0.4, none at 3", {2: 0.4, 3: None}),
        ("macro, micro every 10", {0: "macro", 9: "macro", 10: "micro", 20: "macro"}),
    ],
)
def test_what_a_text_means(text: str, values: dict[int, object]) -> None:
    for step, value in values.items():
        assert at(text, step) == (pytest.approx(value) if isinstance(value, float) else value)


def test_a_knob_may_follow_the_last_steps_numbers() -> None:
    text = "0.96->0.875 by optim/prior_moved in 0..0.01"
    assert at(text, 0) == pytest.approx(0.96)
    told = {0.0: 0.96, 0.005: 0.9175, 0.02: 0.875, -1.0: 0.96}
    found = schedule(text)
    assert found is not None
    for moved, value in told.items():
        assert found.at(7, {"optim/prior_moved": moved}) == pytest.approx(value)
    last = schedule("last policy/log_entropy_pivot or none")
    assert last is not None
    assert last.at(0, {}) is None
    assert last.at(3, {"policy/log_entropy_pivot": -2.5}) == -2.5


@given(st.text(max_size=30))
def test_other_text_is_no_schedule(text: str) -> None:
    try:
        found = schedule(text)
    except RolltreeError:
        return
    assert found is None or any(word in text for word in ("over", "at", "every", "by", "last"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0.2->1 ovr 100", "cannot be read"),
        ("0.2->1 over 0", "lasts no step"),
        ("1->2 by kl in 3..3", "no width"),
        ("1, 0.5 at 20, 0.2 at 10", "out of order"),
        ("a, b every 0", "every 0 steps"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(RolltreeError, match=said):
        schedule(text)


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    name: str = "plain"


@dataclass(frozen=True)
class Outer:
    group: int = 4
    share: float | None = 0.5
    part: str = ""
    inner: Inner = field(default_factory=Inner)


def test_every_knob_of_a_dataclass_may_vary_and_whole_numbers_stay_whole() -> None:
    varying = Outer(
        group="4->8 over 8",  # type: ignore[arg-type]
        share="0.5, none at 4",  # type: ignore[arg-type]
        part="downsampled(leaves='0->1 over 4', base=\"grpo\")",
        inner=Inner(rate="0->1 over 4"),  # type: ignore[arg-type]
    )
    assert settled(varying, 2) == Outer(5, 0.5, 'downsampled(leaves=0.5, base="grpo")', Inner(0.5))
    assert isinstance(settled(varying, 3).group, int)
    assert settled(varying, 4).share is None
    assert schedules(varying) == {
        "group": "4->8 over 8", "share": "0.5, none at 4", "part": "0->1 over 4", "inner.rate": "0->1 over 4"
    }  # fmt: skip
    assert [step for step, _ in corners(schedules(varying))] == [0, 1, 3, 4, 5, 7, 8, 9]
    plain = Outer()
    assert settled(plain, 9) is plain
    with pytest.raises(RolltreeError, match=r"inner\.rate='fast' is neither a value nor a schedule"):
        settled(Outer(inner=Inner(rate="fast")))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1, 2 at 60%", {0.0: 1, 0.59: 1, 0.6: 2, 1.0: 2}),
        ("0.2->1 over 50% after 25%", {0.0: 0.2, 0.25: 0.2, 0.5: 0.6, 0.75: 1.0, 1.0: 1.0}),
        ("mixed, fresh at 50%", {0.49: "mixed", 0.5: "fresh"}),
    ],
)
def test_a_schedule_may_count_in_shares_of_the_run(text: str, values: dict[float, object]) -> None:
    found = schedule(text)
    assert found is not None
    for over, value in values.items():
        now = found.at(10_000, {OVER: over})
        assert now == (pytest.approx(value) if isinstance(value, float) else value)
    assert found.at(10_000, {}) == next(iter(values.values())), "nothing is over where nobody says how much is"


def test_what_is_built_on_the_way_is_checked_at_every_share() -> None:
    text = "1, 2 at 25%, 3 at 75%"
    found = schedule(text)
    assert found is not None
    near = corners({"a": text, "b": "0->1 by x in 3..5"})
    assert {found.at(step, told) for step, told in near} == {1, 2, 3}
    assert {(told.get(OVER), told.get("x")) for _, told in near} >= {(0.75, 3.0), (0.75, 5.0), (None, None)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1, 2 at 100%", "behind the end"),
        ("0->1 over 80% after 30%", "behind the end"),
        ("1, 2 at 10, 3 at 50%", "at once"),
        ("0->1 over 80 after 10%", "at once"),
        ("0->1 over 0%", "lasts no step"),
    ],
)
def test_a_share_that_no_run_reaches_is_refused(text: str, said: str) -> None:
    with pytest.raises(RolltreeError, match=said):
        schedule(text)


@pytest.mark.papers("latr", "rorecomp")
def test_by_default_every_stage_of_a_recipe_lies_within_a_run() -> None:
    steps = TrainConfig().steps
    late = {(name, knob) for name in RECIPES.names() for knob, text in schedules(load_recipe(name)).items()
            if (found := schedule(text)) is not None and found.lasts(steps)}  # fmt: skip
    # LATR's stairs are its script's, and RoRecomp's queue fades: both act from the first step on, and the run says so.
    assert late == {("latr", "share"), ("latr", "full"), ("rorecomp", "compensate")}
