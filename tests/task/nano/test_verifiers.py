"""What each nano verifier accepts, refuses and says."""

import asyncio

import pytest

from rolltree.task.nano.arithmetic import Arithmetic
from rolltree.task.nano.calculator import Calculator
from rolltree.task.nano.countdown import Countdown
from rolltree.task.nano.lookup import Lookup
from rolltree.task.nano.records import Records
from rolltree.task.protocol import Item


def judge(task, item, text, state=None):
    return asyncio.run(task.verify(item, state, text))


ARITHMETIC = Item("a", "7+5-3=", 9, meta={"terms": (7, 5, -3)})
COUNTDOWN = Item("c", "3 5 7>26:", 26, meta={"numbers": (3, 5, 7)})


@pytest.mark.parametrize(
    ("text", "score", "steps"),
    [
        ("7+5=12,12-3=9", 1, 1),
        ("5+7=12,12-3=9", 1, 0.5),
        ("7+5=13,13-3=10", 0, 0),
        ("7+5=12,12-3=10", 0, 0.5),
        ("7+5=12,12-3=9,9+0=9", 1, 2 / 3),
        ("7+5=12", 0, 0.5),
        ("7+5=12,12-3=9 ", 0, 0),
        ("9", 0, 0),
        ("", 0, 0),
    ],
)
def test_arithmetic_scores_the_last_result_and_reports_the_steps(text, score, steps):
    verdict = judge(Arithmetic(), ARITHMETIC, text)
    assert (verdict.score, verdict.parts["steps"]) == (score, pytest.approx(steps))


@pytest.mark.parametrize(
    ("text", "score", "why"),
    [
        ("3*7=21,21+5=26", 1, ""),
        ("5+7=12,3+12=15;7*3=21,5+21=26", 1, ""),
        ("3*7=21,21+5=26;5+7=12,12*3=36", 0, "made 36 instead of 26"),
        ("3*7=22,22+5=26", 0, "3*7=22 is wrong"),
        ("3*7=21,21+3=24", 0, "3 is not in hand"),
        ("5*5=25,25+1=26", 0, "5 is not in hand"),
        ("3*7=21", 0, "1 of the numbers are left over"),
        ("3*7=21,21+5=26;", 0, "'' is not a step like 3*7=21"),
        ("26", 0, "'26' is not a step like 3*7=21"),
        ("3-5=-2,7--2=9", 0, "made 9 instead of 26"),
    ],
)
def test_countdown_checks_the_last_attempt_exactly(text, score, why):
    verdict = judge(Countdown(), COUNTDOWN, text)
    assert (verdict.score, verdict.why) == (score, why)


def test_countdown_answers_agree_up_to_the_order_of_commuting_operands():
    same = [judge(Countdown(), COUNTDOWN, text).answer for text in ("3*7=21,21+5=26", "7*3=21,5+21=26")]
    assert same[0] == same[1] is not None
    assert judge(Countdown(), COUNTDOWN, "3+5=8,8*7=56").answer != same[0]


def test_countdown_may_leave_numbers_when_asked_to():
    item = Item("c", "3 5 7>21:", 21, meta={"numbers": (3, 5, 7)})
    assert judge(Countdown(use_all=False), item, "3*7=21").score == 1
    assert judge(Countdown(use_all=True), item, "3*7=21").score == 0


def play(task, item, turns):
    """Replies and the verdict of a scripted rollout."""

    async def run():
        state, _ = task.start(item)
        replies, text = [], ""
        for turn in turns:
            replies.append(await task.step(item, state, turn))
            state, text = replies[-1].state, text + turn + replies[-1].text
        return replies, await task.verify(item, state, text)

    return asyncio.run(run())


FACTS = {"ko": {"b": "mi", "h": "za"}, "mi": {"h": "lu", "b": "ko"}, "za": {"h": "ko", "b": "mi"}}
LOOKUP = Item("l", "ko.b.h?\n", "lu", meta={"facts": FACTS, "path": ["ko", "mi", "lu"]})


def test_lookup_rewards_each_hop_once_and_only_the_answer_scores():
    replies, verdict = play(Lookup(), LOOKUP, ["?ko\n", "?ko\n", "?mi\n", "=lu\n"])
    assert [reply.text for reply in replies] == ["b:mi h:za\n", "b:mi h:za\n", "h:lu b:ko\n", ""]
    assert [reply.reward for reply in replies] == [0.5, 0, 0.5, 0]
    assert replies[0].state_key == replies[1].state_key
    assert (verdict.score, verdict.answer, verdict.parts["hops"]) == (1, "lu", 1)


def test_lookup_state_does_not_remember_the_order_of_searches():
    one, _ = play(Lookup(), LOOKUP, ["?ko\n", "?mi\n"])
    two, _ = play(Lookup(), LOOKUP, ["?mi\n", "?ko\n"])
    assert one[-1].state_key == two[-1].state_key
    assert one[-1].state == two[-1].state


def test_lookup_says_what_went_wrong():
    replies, verdict = play(Lookup(), LOOKUP, ["?xx\n", "find ko\n", "=za\n"])
    assert [(reply.text, reply.failed) for reply in replies] == [("none\n", False), ("bad\n", True), ("", False)]
    assert verdict.why == "answered za instead of lu"
    assert play(Lookup(), LOOKUP, ["?ko\n"])[1].why == "no answer was given"


def test_an_answer_ended_by_end_of_text_counts():
    """The policy may end with eos instead of the newline, in which case no step is taken."""
    state, _ = Lookup().start(LOOKUP)
    assert judge(Lookup(), LOOKUP, "?ko\nb:mi h:za\n=lu", state).score == 1
    assert judge(Lookup(), LOOKUP, "?ko\nb:mi h:za\n=lu\nx", state).score == 0


def test_calculator_failures_depend_on_item_and_call_number_alone():
    task = Calculator(fail_rate=0.5)
    patterns = {}
    for number in range(40):
        item = Item(f"k{number}", "calc 2*3+4\n", 10, meta={"terms": ("2", "*3", "+4"), "totals": (6, 10)})
        one, _ = play(task, item, ["2*3\n"] * 6)
        two, _ = play(task, item, ["7+7\n"] * 6)
        patterns[item.id] = [reply.failed for reply in one]
        assert patterns[item.id] == [reply.failed for reply in two]
        assert all(any(not failed for failed in patterns[item.id][k : k + 3]) for k in range(4))
    share = sum(map(sum, patterns.values())) / 240
    assert 0.3 < share < 0.55
    assert len(set(map(tuple, patterns.values()))) > 5


def test_calculator_refuses_more_than_two_numbers_without_using_up_a_call():
    item = Item("k", "calc 2*3+4\n", 10, meta={"terms": ("2", "*3", "+4"), "totals": (6, 10)})
    replies, verdict = play(Calculator(fail_rate=0), item, ["2*3+4\n", "2*3\n", "6+4\n", "=10\n"])
    assert [reply.text for reply in replies] == ["bad\n", "6\n", "10\n", ""]
    assert (verdict.score, verdict.parts["calls"]) == (1, 2)


RECORD = Item("r", "age:int,ok:bool|ok yes;age 34\n", '{"age": 34, "ok": true}',
              meta={"schema": {"age": "int", "ok": "bool"}, "source": {"age": "34", "ok": "yes"}})  # fmt: skip


@pytest.mark.parametrize(
    ("text", "score", "why"),
    [
        ('{"age":34,"ok":true}', 1, ""),
        ('{"ok": true, "age": 34}', 1, ""),
        ('{"age":"34","ok":true}', 0, "wrong: age"),
        ('{"age":34,"ok":1}', 0, "wrong: ok"),
        ('{"age":true,"ok":true}', 0, "wrong: age"),
        ('{"age":34}', 0, "wrong: ok"),
        ('{"age":34,"ok":true,"id":1}', 0, "wrong: id"),
        ('{"age":34,"age":34,"ok":true}', 0, "not a JSON object: a key is given twice"),
        ('{"age":NaN,"ok":true}', 0, "not a JSON object: NaN is not JSON"),
        ('[{"age":34,"ok":true}]', 0, "not a JSON object: the top level is not an object"),
    ],
)
def test_records_are_compared_by_type_and_value(text, score, why):
    verdict = judge(Records(), RECORD, text)
    assert (verdict.score, verdict.why) == (score, why)


def test_records_parts_are_shares_of_the_fields():
    verdict = judge(Records(), RECORD, '{"age":34,"ok":"yes"}')
    assert verdict.parts == {"parses": 1, "keys": 1, "types": 0.5, "values": 0.5}
