"""What the worlds of slides, replies and rebuttals say about texts that are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Composite
from rolltree.filter.shaping import SLIDES, RewardPart, Rewards, delta
from rolltree.tree import Tree
from studies.exact import rebuttal, replies, routed, slides
from studies.exact.written import Words, train


def test_a_rewarded_word_is_written_more_often_and_a_mean_for_all_says_nothing_of_it() -> None:
    def graded(prompt: int, words: Words) -> dict[str, float]:
        return {"zero": float(words[0] == 0)}

    def first(policy: np.ndarray) -> float:
        return float(policy[0, 0, 0])

    shaper = Composite(Rewards((RewardPart("zero"),)))
    done = train(np.zeros((1, 2, 4)), graded, (shaper,), load_credit("rloo"), first, seed=0)
    assert done.curve[0] == 0.25
    assert done.curve[-1] > 0.9
    assert 0 < done.reshaped < 1


def ids(words: tuple[str, ...], said: str) -> Words:
    return tuple(words.index(word) for word in said.split())


def test_the_reader_finds_what_is_named_and_guesses_the_rest() -> None:
    found = slides.read(ids(slides.WORDS, "energy | trade | managers and"))
    assert found["topic"] == "energy trade"
    assert found["audience"] == "managers"
    assert found["num_slides"] == 3
    told = slides.read(ids(slides.WORDS, "grid grid port port chart |"))
    assert (told["topic"], told["audience"]) == ("energy trade", "managers")


def test_a_covered_deck_is_read_by_its_content_alone() -> None:
    told = slides.read(slides.covered(ids(slides.WORDS, "energy grid port port chart |")))
    assert (told["topic"], told["audience"], told["num_slides"]) == ("energy trade", "managers", 2)
    names = slides.covered(ids(slides.WORDS, "trade health managers trade health managers"))
    assert names == slides.covered(ids(slides.WORDS, "energy cities experts cities energy experts"))


def test_a_compromise_is_counted_where_both_rewards_would_choose_otherwise() -> None:
    def group(*decks: tuple[float, float]) -> Tree:
        tree = Tree("t", [0])
        for brief, content in decks:
            parts = dict.fromkeys((part.name for part in SLIDES.parts), 0.0) | {"brief": brief, "content": content}
            tree.extend(0, [1], status="done", scores={"reward": 0.0, **parts})
        Composite(SLIDES)(tree, 1)
        return tree

    met = slides.Compromises()
    met(group((1.0, 0.0), (0.0, 1.0), (0.7, 0.7)), 1)
    assert met.found == 1
    met(group((1.0, 0.0), (0.0, 0.5)), 1)
    assert met.found == 1


def test_changes_of_quality_sum_to_the_last_less_the_first() -> None:
    world = slides.Briefs(0)
    deck = [ids(slides.WORDS, t) for t in ("so so so so so so", "grid so so so so so", "grid | so so so so")]
    quality = [world.recovered(0, words) for words in deck]
    steps = [delta(a, b) for a, b in pairwise(quality)]
    assert sum(steps) == pytest.approx(quality[-1] - quality[0])


def test_classifiers_read_what_a_reply_says() -> None:
    world = replies.Posts(0)
    kind, rude = (world.graded(0, ids(replies.WORDS, f"{w} false source post0 is so")) for w in ("please", "idiot"))
    assert kind["politeness"] > 0.5 > rude["politeness"]
    assert kind["relevance"] > 0.5
    assert world.graded(1, ids(replies.WORDS, "please false source post0 is so"))["relevance"] < 0.5


def test_the_truth_refuses_templates_and_other_concerns() -> None:
    def met(said: str) -> float:
        return rebuttal.met(1, ids(rebuttal.WORDS, f"<a> moon moon {said}"))

    assert met("baselines moon green seven often") == 1.0
    assert met("baselines thank reviewer will moon") == 0.0
    assert met("baselines theory green seven often") == 0.0
    assert met("moon green seven often door") == 0.0
    world = rebuttal.Reviews(0)
    thanks = world.graded(1, ids(rebuttal.WORDS, "<a> moon moon thank reviewer will revise paper"))
    other = world.graded(1, ids(rebuttal.WORDS, "moon <a> moon baselines moon green seven often"))
    assert (thanks["format"], other["format"]) == (1.0, 0.0)
    assert other["diversity"] > 0.5 > thanks["diversity"]


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
