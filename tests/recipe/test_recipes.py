"""What is true of every recipe, and what makes each the method of its paper."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from rolltree.control.order import ControlError
from rolltree.credit.advantage import Advantage
from rolltree.credit.registry import credits, load_credit
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.errors import RolltreeError
from rolltree.objective.registry import load_objective
from rolltree.recipe.check import ALWAYS, FROM_TRAINER, check
from rolltree.recipe.recipe import Parts, RecipeError
from rolltree.recipe.registry import knobs_of, list_recipes, load_recipe
from rolltree.task.registry import load_task
from rolltree.testing.tiny import Walk
from rolltree.tree.table import Table
from tests.train.toy import Early

ENGINE = TabularEngine(
    lambda _: [1 / 32] * 32, Letters("abcdefghijklmnopqrstuvwxyz012345"), embeddings=np.eye(32, dtype=np.float32)
)


@pytest.mark.parametrize("card", list_recipes(), ids=lambda c: c.name)
def test_cards_are_complete_and_recipes_fit_their_surroundings(card) -> None:  # pyright: ignore
    recipe = load_recipe(card.name)
    parts = recipe.build()
    assert parts.name == card.name == recipe.card.name
    assert card.paper
    assert card.claim
    assert 2015 < card.year < 2100
    assert card.baseline is None or card.baseline in {c.name for c in list_recipes()}
    assert recipe == load_recipe(card.name, **knobs_of(card.name))
    own = load_task(card.task) if card.task.startswith(("chained:", "tagged:", "labelled:")) else None
    check(parts, ENGINE, own or (Walk() if "turns" in parts.strategy.needs else Early()))


@pytest.mark.papers("a2fm")
def test_tags_on_a_task_that_reads_none_are_refused_before_the_start() -> None:
    with pytest.raises(ControlError, match="reads no tags; take --task tagged:early, or give"):
        check(load_recipe("a2fm").build(), ENGINE, Early())
    check(load_recipe("a2fm", tags=()).build(), ENGINE, Early())


def test_knobs_reach_the_parts() -> None:
    parts = load_recipe("grpo", group=5, clip=0.1, kl=0.04).build()
    assert parts.strategy.n == 5  # pyright: ignore
    assert parts.objective.surrogate.clip_high == 0.1  # pyright: ignore
    assert "reference" in parts.objective.needs
    assert load_recipe("dapo", overlong=False).build().shapers == ()
    assert load_recipe("gspo", updates=2).build().optim == {"minibatches": 2}


@pytest.mark.parametrize(
    ("name", "knobs", "said"),
    [
        ("gropo", {}, "did you mean 'grpo'"),
        ("grpo", {"gruop": 4}, "did you mean 'group'"),
        ("grpo", {"temperature": 4}, "it has group, clip, kl, ddof"),
    ],
)
def test_unknown_names_suggest_the_near_one(name: str, knobs: dict[str, int], said: str) -> None:
    with pytest.raises(RolltreeError, match=said):
        load_recipe(name, **knobs)


@pytest.mark.papers("grpo_roc")
def test_a_group_of_one_is_refused() -> None:
    with pytest.raises(RecipeError, match="group=1"):
        load_recipe("grpo", group=1).build()
    load_recipe("reinforce_pp", group=1, baseline=False).build()
    with pytest.raises(RecipeError, match="keep=2 may keep wrong rollouts alone"):
        load_recipe("grpo_roc", keep=2).build()


@dataclass(frozen=True)
class Wants:
    needs: frozenset[str]

    def __call__(self, table: Table) -> Advantage:
        return Advantage(leaf=np.zeros(len(table.leaf)))


@pytest.mark.parametrize(
    ("need", "said"),
    [
        ("state_key", "task 'early' has no environment"),
        ("value", "neither the strategy Independent, the control Uniform nor the task 'early' writes"),
    ],
)
def test_what_a_part_cannot_supply_is_said_first(need: str, said: str) -> None:
    parts = replace(load_recipe("grpo").build(), credit=Wants(frozenset({need})))
    with pytest.raises(RecipeError, match=said):
        check(parts, ENGINE, Early())


def test_corrections_need_an_engine_that_samples_the_policy() -> None:
    greedy = TabularEngine(lambda _: [0.5, 0.5], Letters("ab"))
    greedy.capabilities = replace(greedy.capabilities, samples_exactly=False)
    parts: Parts = replace(load_recipe("grpo").build(), objective=load_objective("clipped", correction="tis"))
    check(parts, ENGINE, Early())
    with pytest.raises(RecipeError, match="only promises the most likely token"):
        check(parts, greedy, Early())


def test_any_credit_and_any_objective_go_into_any_recipe() -> None:
    recipe = load_recipe(
        "treepo", leaves=6, use_credit="node_delta(backup='child_mean')", use_objective="cispo(high=4)"
    )
    parts, own = recipe.build(), load_recipe("treepo", leaves=6).build()
    assert parts.credit == load_credit("node_delta", backup="child_mean")
    assert parts.objective == load_objective("cispo", high=4)
    assert replace(parts, credit=own.credit, objective=own.objective) == own
    assert recipe.card is load_recipe("treepo").card


@pytest.mark.parametrize("name", credits())
def test_a_swapped_credit_is_recorded_for_or_refused_in_one_sentence(name: str) -> None:
    parts = load_recipe("grpo", use_credit=name).build()
    unmet = {n for n in parts.credit.needs if n not in ALWAYS | FROM_TRAINER and n != "entropy" and n[:4] != "top:"}
    if unmet:
        with pytest.raises(RecipeError, match=r"needs '|needs \""):
            check(parts, ENGINE, Early())
    else:
        check(parts, ENGINE, Early())


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"use_credit": "giggpo"}, "did you mean 'gigpo'"),
        ({"use_credit": "gigpo(omga=1)"}, "did you mean 'omega'"),
        ({"use_objective": "clipped(0.2)"}, r"cannot read 'clipped\(0.2\)' as a part"),
        ({"use_objective": "clipped(clip_high=open)"}, "cannot read"),
        ({"use_objectiv": "cispo"}, "did you mean 'use_objective'"),
    ],
)
def test_swaps_that_cannot_be_read_say_so(knobs: dict[str, str], said: str) -> None:
    with pytest.raises(RolltreeError, match=said):
        load_recipe("grpo", **knobs).build()


@pytest.mark.parametrize(
    "credit",
    [
        "gae(gamma=2.0)", "gigpo(gamma=-1.0)", "hgpo(history=-1)", "hgpo(gamma=3.0)", "pass_at_k(k=0)",
        "redistributed(beta=2.0)", "length_calibrated(alpha=0.0)", "set_shared(size=0)", "downsampled(leaves=0.0)",
        "recomposed(share=0.0)", "budget(limit=0)", "redistributed(base='nonsense')", "novelty(base='grpoo')",
    ],
)  # fmt: skip
def test_knobs_of_a_credit_are_refused_when_it_is_made(credit: str) -> None:
    with pytest.raises(RolltreeError):
        load_recipe("grpo", use_credit=credit).build()
