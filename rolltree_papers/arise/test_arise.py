"""ARISE's library and the control around it: each must fail here where its rule does not act."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rolltree
from rolltree.control.history import History
from rolltree.control.order import ControlError, Delivery
from rolltree.control.schedule import preset
from rolltree.knobs.varying import OVER
from rolltree.recipe.compose import compose
from rolltree.recipe.registry import load_recipe
from rolltree.testing.tiny import SpellTask
from rolltree.tree import Tree
from rolltree_papers.arise import FIELDS, Arise, Library, Skill, SkillBonus, chances, first_worth, read
from rolltree_papers.arise.study import SkillWorld, told_apart
from studies.prompts.world import run
from tests.rollout.flying import fly, tabular
from tests.train.toy import KNOBS, Early, tiny_policy


def names(skills: list[Skill]) -> list[str]:
    return [skill.name for skill in skills]


def test_the_librarys_step_in_its_order() -> None:
    library = Library([Skill("a", "a", 0.5), Skill("b", "b", 0.1)], [Skill("r", "r", 0.3, uses=1)])
    library.update("a", 2.0)
    assert library.cache[0].utility == pytest.approx(0.65)
    assert library.cache[0].uses == 1
    assert not library.add(Skill("r", "again", 1.0)), "a name that stands is refused"
    assert library.add(Skill("c", "c", -1.0))
    library.settle(cache=2, reservoir=2)
    # c is evicted, r is better than b and takes its place, and c, never used, lies below the 10th percentile.
    assert names(library.cache) == ["a", "r"]
    assert names(library.reservoir) == ["b"]


def test_what_was_used_is_not_deleted_and_a_full_reservoir_loses_its_lowest() -> None:
    library = Library([], [Skill(str(i), "", float(i), uses=1) for i in range(30)])
    library.settle(cache=2, reservoir=30)
    assert len(library.reservoir) == 30
    library.settle(cache=2, reservoir=28)
    assert names(library.reservoir) == [str(i) for i in range(2, 30)]


@pytest.mark.parametrize(
    ("unaided", "tried", "worth"),
    [([1.0, 0.0], 0.0, -1.0), ([0.0, 0.2], 0.0, 0.0), ([1.0, 0.0], 1.0, 0.5), ([0.0, 0.2], 1.0, 1.0)],
)
def test_a_new_skill_is_worth_what_its_trial_says(unaided: list[float], tried: float, worth: float) -> None:
    assert first_worth(unaided, tried) == worth


def test_a_document_needs_all_its_fields_and_its_length() -> None:
    told: dict[str, Any] = dict.fromkeys(FIELDS, "x") | {"skill_name": "carry", "method": ["add", "carry one"]}
    found = read(f"so:\n{json.dumps(told)}", 60)
    assert found is not None
    assert (found.name, found.text) == ("carry", "carry: x x add carry one x")
    assert read(json.dumps(told), 20) is None, "too long"
    assert read(json.dumps({**told, "check": ""}), 60) is None
    assert read("{not json}", 60) is None
    assert read("[1]", 60) is None


def test_ten_documents_hardly_ever_reach_the_gate_at_the_published_temperature() -> None:
    scores = [0.0] * 9 + [1.5]
    assert max(chances(scores, 1.0)) < 0.35 < max(chances(scores, 0.1))
    scores[-1] = 1.6
    assert max(chances(scores, 1.0)) > 0.35, "a gap of 1.58 nats per token"


def orders(control: Arise, world: SkillWorld, steps: int = 3) -> list[Delivery]:
    logs = run(control, world, steps, prompts=6, width=4, state=control.start(), history=History())
    return [d for log in logs for d in log.delivered]


def test_skills_are_shown_to_whole_groups_and_concluded_where_outcomes_differ() -> None:
    world = SkillWorld(40, seed=1, mean=0.0, spread=2.0, gain=0.0, drift=0.0)
    told = orders(Arise(sigma=0.1, gate=0.0), world)
    arms = {d.order.arm for d in told}
    assert arms == {"plain", "skilled", "conclude", "trial"}
    assert all(not d.order.for_training for d in told if d.order.arm in ("conclude", "trial") or d.order.given)
    groups = [d for d in told if d.order.arm == "skilled"]
    assert {d.n for d in groups} == {4}
    assert all(d.order.leaf_marks == {"skilled": 1.0} for d in groups)
    mixed = [d for d in told if d.order.for_training and len(set(d.rewards)) > 1]
    assert len(world.made) == len(mixed) == sum(d.order.arm == "trial" for d in told) > 0


def test_while_the_library_fills_nobody_is_shown_a_skill() -> None:
    world = SkillWorld(40, seed=1, mean=0.0, spread=2.0, gain=0.0, drift=0.0)
    told = orders(Arise(use=False, sigma=0.1, gate=0.0), world)
    assert world.made
    assert not any(d.order.arm == "skilled" or d.order.given for d in told)
    use = [compose(load_recipe("arise"), 0, {OVER: over}).control.use for over in (0.0, 0.49, 0.5)]  # pyright: ignore
    assert use == [False, False, True]


def test_utilities_sort_the_documents() -> None:
    assert told_apart(0) > 0.5, "skills that help stay in the cache"


def test_scores_are_mean_log_probs_under_the_policy_that_is_asked() -> None:
    told: list[Delivery] = []

    class Watched(Arise):
        def plan(self, step: Any, state: Any) -> Any:
            plan, answer = Arise.plan(self, step, state), None
            while True:
                try:
                    asked = next(plan) if answer is None else plan.send(answer)
                except StopIteration:
                    return
                answer = yield asked
                told.extend(answer)

    control = Watched(seeds=("ab!", "cd"), shown="{skill}", conclude="{prompt}{traces}", gate=0.0)
    fly(preset("sync"), task=SpellTask(), control=control, updates=1)
    scored = {d.order.prompt.place: d for d in told if d.order.given}
    shown = [d for d in told if d.order.arm == "skilled"]
    assert scored
    assert shown
    engine = tabular()

    def likely(d: Delivery, text: str) -> float:
        prefix = list(engine.codec.encode(d.order.prompt.item.prompt))
        own = [*engine.codec.encode(text), *([] if text.endswith("!") else [engine.codec.eos_id])]
        return float(asyncio.run(engine.score(np.array([*prefix, *own]), len(prefix))).logp.mean())

    for d in scored.values():
        expected = [likely(d, w.turns[0]) for w in d.order.given]
        assert d.logp == pytest.approx(expected, abs=1e-5)
    best = 0
    for d in shown:
        assert d.order.brief is not None
        mine = scored[d.order.prompt.place]
        texts = [w.turns[0] for w in mine.order.given]
        assert d.order.brief.text in texts
        best += d.order.brief.text == texts[int(np.argmax(mine.logp))]
    assert best >= len(shown) - 1, "the likeliest one, but for a chance of 0.1"


def test_a_success_with_a_skill_earns_twice() -> None:
    tree = Tree("t", [0], task="t", item="i")
    for reward, skilled in ((1.0, 1.0), (0.0, 1.0), (1.0, 0.0)):
        tree.extend(tree.root, [1], status="done", scores={"reward": reward, "skilled": skilled})
    for _ in range(2):
        SkillBonus()(tree, 8)
    assert [leaf.scores["reward"] for leaf in tree.leaves()] == [2.0, 0.0, 1.0]
    assert [leaf.scores["outcome"] for leaf in tree.leaves()] == [1.0, 0.0, 1.0]


def test_a_run_collects_and_then_uses(tmp_path: Path) -> None:
    recipe = load_recipe("arise", use="0, 1 at 2", gate=0.0, rounds=1, conclude="")
    knobs: dict[str, Any] = {**KNOBS, "steps": 4, "eval_every": 0}
    run = rolltree.train(recipe, tiny_policy(), Early(), out=tmp_path / "run", **knobs)
    steps = [line for line in run.metrics if line["kind"] != "eval"]
    shown = [line.get("budget/arm/skilled", 0.0) for line in steps]
    assert shown[:2] == [0.0, 0.0]
    assert min(shown[2:]) > 0
    assert all(line["budget/arm/measured"] > 0 for line in steps)


def test_knobs_that_make_no_sense() -> None:
    with pytest.raises(ControlError, match="shown must hold"):
        Arise(shown="x")
    with pytest.raises(ControlError, match="cache=0"):
        Arise(cache=0)
