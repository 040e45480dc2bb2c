"""What `tablegpt_r1` promises beside what all of its kind do."""

from __future__ import annotations

import pytest

from rolltree_papers.tablegpt_r1 import study as routed
from studies.exact.written import Words
from tests.studies.exact.test_written import ids


def test_a_table_answer_is_right_by_its_kind_and_each_kind_has_its_own_parts() -> None:
    world = routed.Tables(0)
    number, open_prompt, agentic = 0, routed.EACH, 2 * routed.EACH
    answer = {p: routed.NUMBERS[world.right[p]] for p in (number, agentic)}

    def of(said: str) -> Words:
        return ids(routed.WORDS, said)

    assert world.truth(number, of(f"wait wait wait wait wait {answer[number]}")) == 1
    assert world.truth(agentic, of(f"open crash sum sum wait {answer[agentic]}")) == 1
    assert world.truth(agentic, of(f"sum open wait wait wait {answer[agentic]}")) == 0
    first, second, never = (routed.WORDS[w] for w in world.criteria[open_prompt])
    assert world.truth(open_prompt, of(f"{first} {second} wait wait wait wait")) == 1
    assert world.truth(open_prompt, of(f"{first} {never} wait wait wait wait")) == pytest.approx(1 / 3)
    for prompt, parts in ((number, {"rules"}), (open_prompt, {"criteria"}), (agentic, {"rules", "steps"})):
        graded = world.parts(prompt, of(f"open crash sum sum wait {routed.NUMBERS[world.right[prompt]]}"))
        assert {name for name in ("rules", "criteria", "steps") if graded[name]} == parts
        every = world.unrouted(prompt, of("open crash sum sum wait one"))
        assert 0 not in (every["steps"], every["criteria"])
        silent = world.unrouted(prompt, of("open crash sum sum wait one"), silent=True)
        assert (silent["criteria"] != 0) == (prompt == open_prompt)
        assert {name: every[name] for name in ("fresh", "calm", "no_plot")}.items() <= graded.items()
    assert routed.steps(["open", "sum", "sum", "crash", "wait"]) == pytest.approx(-0.1)
