from __future__ import annotations

import math

import pytest

from rolltree.filter.shaping import (
    REPLY,
    SLIDES,
    STRUCTURED,
    RewardError,
    RewardPart,
    Rewards,
    brief_recovered,
    delta,
    json_parts,
)


def test_parts_are_weighed_gated_and_recorded():
    shut = {"structure": 0.5, "format": 0.0, "validity": 0.0, "content": 1.0}
    verdict = STRUCTURED.verdict(shut)
    assert verdict.score == 0.5
    assert verdict.parts == shut
    assert STRUCTURED.verdict({**shut, "validity": 1.0}).score == 2.5


def test_a_mean_divides_by_the_weights():
    ones = {p.name: 1.0 for p in SLIDES.parts}
    assert SLIDES.verdict(ones).score == pytest.approx(1.0)
    assert SLIDES.verdict({**ones, "brief": 0.0}).score == pytest.approx(8 / 10)
    assert REPLY.verdict({p.name: 1.0 for p in REPLY.parts}).score == pytest.approx(13.1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
def test_a_crashed_judge_is_never_a_zero(bad):
    measured = {p.name: 1.0 for p in SLIDES.parts}
    measured.pop("render")
    if bad is not None:
        measured["render"] = bad
    with pytest.raises(RewardError, match="'render'"):
        SLIDES.verdict(measured)


def test_gates_must_exist():
    with pytest.raises(RewardError, match="gated by 'syntax'"):
        Rewards((RewardPart("content", gate="syntax"),))
    with pytest.raises(RewardError, match="share a name"):
        Rewards((RewardPart("a"), RewardPart("a")))


def test_json_parts():
    assert json_parts('{"a": 1, "b": 2}', ["a", "b"]) == {"structure": 1.0, "format": 1.0, "validity": 1.0}
    fenced = json_parts('```json\n{"a": 1, "c": 2}\n```', ["a", "b"])
    assert fenced == {"structure": pytest.approx(1 / 3), "format": 0.0, "validity": 1.0}
    assert json_parts('{"a": 1', ["a"]) == {"structure": 0.0, "format": 0.0, "validity": 0.0}
    assert json_parts("no", [])["validity"] == 0.0
    for endless in ('{"a": ' + "9" * 5000 + "}", '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}"):
        assert json_parts(endless, ["a"]) == {"structure": 0.0, "format": 1.0, "validity": 0.0}


def test_a_brief_read_back_from_the_deck():
    brief = {"topic": "solar power", "audience": "engineers", "num_slides": 10, "key_themes": ["cost"]}
    same = {**brief, "key_themes": ["solar", "power"]}
    assert brief_recovered(brief, same) == pytest.approx(1.0)
    half = {"topic": "solar", "audience": "young engineers", "num_slides": 5, "key_themes": ["solar"]}
    assert brief_recovered(brief, half) == pytest.approx(0.4 * 0.5 + 0.25 * 0.7 + 0.15 * 0.5 + 0.2 * 0.75)
    assert brief_recovered(brief, {}) == 0.0


def test_delta_pays_the_change():
    assert delta(0.4, 0.7, bonus=0.01) == pytest.approx(0.31)
