"""What `hiper` promises beside what all of its kind do."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rolltree.generate.independent import Independent
from rolltree.generate.plans import PlanExecute
from rolltree.generate.strategy import NeedsError
from rolltree.task.nano.spoken import TURN
from rolltree.task.protocol import Item, Reply
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import CODEC, Walk, tiny_engine
from rolltree_papers.hiper import SubgoalTurns, whole_turn
from tests.generate.test_plans import grown
from tests.train.toy import Early


class Paid(Walk):
    """A walk that pays for cell 5."""

    async def step(self, item: Item, state: int, text: str) -> Reply:
        reply = await Walk.step(self, item, state, text)
        return Reply(reply.text, reply.state, reply.done, float(reply.state == 5), reply.state_key)


def test_plans_and_segments_keep_the_strategy_contract() -> None:
    check_strategy(PlanExecute(2, 2, turns=2, stop=("e", "f", "g")))
    for by in ("written", "paid"):
        check_strategy(SubgoalTurns(Independent(3), by))
    for phase in ("macro", "micro"):
        check_strategy(PlanExecute(2, 2, turns=2, stop=("e", "f", "g"), phase=phase))


def test_a_segment_begins_where_the_environment_has_paid() -> None:
    seen = set()
    for tree in grown(SubgoalTurns(Independent(6), "paid"), Paid()):
        for node in tree:
            if node.role != "policy" or not len(node):
                continue
            before = tree[node.parent or 0]
            begins = before.parent is None or before.scores["step_reward"] == 1.0
            assert node.scores["switch"] == float(begins)
            assert node.notes["spans"] == {"action": (0, len(node))}
            seen.add((begins, before.parent is None))
    assert len(seen) == 3


def test_a_turns_spans_are_read_off_its_text() -> None:
    torn = 0
    for tree in grown(SubgoalTurns(Independent(6)), Walk(), n=20):
        told = tree.events[-1].numbers
        turns = [n for n in tree if n.role == "policy" and len(n)]
        assert told["turns"] == len(turns)
        lacking = 0
        for node in turns:
            text, spans = CODEC.decode(node.actions), node.notes["spans"]
            read = Walk().grammar.find(text)
            assert sum(stop - start for start, stop in spans.values()) == len(node), "every token learns"
            if {"switch", "action"} <= read.keys() and read["switch"] < read["action"]:
                assert text[spans["switch"][1] - 1] == "t"
            elif "switch" not in read and "action" in read:
                assert text[spans["action"][0]] == "u"
            elif not read:
                assert spans == {"action": (0, len(node))}, "a turn that says nothing is an action that failed"
            lacking += not {"switch", "action"} <= read.keys()
        assert told["torn"] == lacking
        torn += lacking
    assert torn


def test_as_the_paper_has_it_what_stands_in_no_span_teaches_nothing() -> None:
    for tree in grown(SubgoalTurns(Independent(6), whole=False), Walk(), n=20):
        for node in tree:
            if node.role == "policy" and len(node):
                assert node.notes["spans"] == Walk().grammar.tokens(CODEC, node.actions)


def test_a_task_without_spans_is_refused() -> None:
    with pytest.raises(NeedsError, match="turns of 'early' have no spans"):
        SubgoalTurns(Independent(2)).check(tiny_engine(), Early())


@given(st.text(alphabet="[SK]{aA}(^)?", min_size=1, max_size=14))
@example("[K]{a}(^)")
@example("]{a}(^)")
@example("{a}[S](^)")
@example("(^){a}")
@example("(^)[S]{a}")
@example("[K]?{a}?(^)")
def test_every_token_of_a_turn_learns_however_torn_its_tags_are(text: str) -> None:
    """A token in no span has no gradient: nothing pushes it down, and the policy drifts into turns of such tokens."""
    whole = whole_turn(TURN.find(text), len(text))
    covered = [at for start, stop in whole.values() for at in range(start, stop)]
    assert covered == list(range(len(text)))
    found = TURN.find(text)
    if "action" in found:  # nothing before the move learns as another one's
        assert found["action"][0] <= whole["action"][1]
        assert whole["action"][0] <= found["action"][0]
    if list(found) == ["switch", "subgoal", "action"] and "".join(text[a:b] for a, b in found.values()) == text:
        assert whole == found, "a turn that is whole is read as it stands"
