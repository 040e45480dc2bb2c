"""What `misinfo_correct` promises beside what all of its kind do."""

from __future__ import annotations

from rolltree_papers.misinfo_correct import study as replies
from tests.studies.exact.test_written import ids


def test_classifiers_read_what_a_reply_says() -> None:
    world = replies.Posts(0)
    kind, rude = (world.graded(0, ids(replies.WORDS, f"{w} false source post0 is so")) for w in ("please", "idiot"))
    assert kind["politeness"] > 0.5 > rude["politeness"]
    assert kind["relevance"] > 0.5
    assert world.graded(1, ids(replies.WORDS, "please false source post0 is so"))["relevance"] < 0.5
