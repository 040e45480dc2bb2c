"""Rollouts looked at in flight: pruned ones are paid and have no outcome, all others are as if untouched."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from rolltree.control.ledger import Budget, Limits
from rolltree.control.probe import Judgement, Over, State
from rolltree.generate.independent import Independent
from rolltree.generate.probed import InFlight, Observed, ProbeError, check_probe
from rolltree.generate.runner import grow
from rolltree.recipe.registry import load_recipe
from rolltree.testing.tiny import SpellTask, Walk, tiny_engine
from rolltree.tree import Forest
from rolltree.tree.forest import assert_conserved
from tests.recipe.small import SMALL


@dataclass
class Fixed:
    """Everybody's chance is the same, or 0 for all but the first of those compared."""

    keep: float = 0.5
    over: Over = "group"
    tokens: int = 3
    first: bool = False
    asked: list[list[str]] = field(default_factory=list)

    def at(self, limit: int) -> int:
        return self.tokens

    def judge(self, states: list[State], trees: list[str]) -> list[Judgement]:
        self.asked.append(list(trees))
        assert all(s.ndim == 1 for s in states)
        return [Judgement(0.5, 0.25, float(i == 0) if self.first else self.keep) for i in range(len(states))]


def grown(
    probe: Fixed | None, *, strategy: object = None, task: object = None,
    budget: Budget | None = None, trees: int = 3, shuffle: int | None = None,
) -> tuple[Forest, dict[str, InFlight]]:  # fmt: skip
    task = task or SpellTask()
    items = [item for item, _ in zip(task.items("train"), range(trees), strict=False)]
    flights = {item.id: InFlight(probe) for item in items}
    made = Observed(strategy or Independent(6), flights)
    forest = asyncio.run(grow(made, tiny_engine(shuffle=shuffle), task, items, seed=3, budget=budget))
    return forest, flights


def written(forest: Forest) -> dict[tuple, tuple]:
    return {(t.id, i): (tuple(n.actions), n.status, n.finish) for t in forest for i, n in enumerate(t.leaves())}


def test_pruned_rollouts_are_paid_and_have_no_outcome_and_the_ledger_conserves():
    budget = Budget()
    forest, flights = grown(Fixed(0.5), budget=budget)
    budget.check()
    found = assert_conserved(forest, submitted=18, settled=True)
    pruned = [leaf for t in forest for leaf in t.leaves() if leaf.status == "pruned"]
    assert 0 < len(pruned) < 18
    assert sum(found.dropped.values()) == len(pruned)
    assert all(len(leaf) == 3 and "reward" not in leaf.scores for leaf in pruned)
    assert all(leaf.scores["posterior"] == 0.25 for leaf in pruned)
    assert budget.spent.decoded == sum(len(leaf) for t in forest for leaf in t.leaves())
    for tree in forest:
        events = {e.node: e for e in tree.events if e.kind == "prune"}
        assert set(events) == {leaf.id for leaf in tree.leaves() if leaf.status == "pruned"}
        for e in events.values():
            assert e.why
            assert e.numbers["drawn"] >= e.numbers["keep"] == 0.5
        seen = flights[tree.id].outcomes(tree)
        assert [p.outcome is None for p in seen] == [p.pruned for p in seen]
        assert all(p.tokens == 3 for p in seen)


def test_a_rollout_that_goes_on_is_one_node_with_all_its_numbers_and_short_ones_are_never_looked_at():
    forest, flights = grown(Fixed(1.0))
    engine = tiny_engine()
    for tree in forest:
        assert len(tree.root.children) == 6
        looked = {node.id for node, *_ in flights[tree.id].seen}
        for leaf in tree.leaves():
            assert leaf.parent == tree.root.id
            assert leaf.status == "done"
            assert "reward" in leaf.scores
            assert (leaf.id in looked) == (len(leaf) > 3)
            ids = [int(t) for t in tree.prefix(leaf)]
            begin = len(tree.root)
            want = [engine.row(tuple(ids[: begin + i]))[ids[begin + i]] for i in range(len(leaf))]
            assert leaf.logp == pytest.approx(want, abs=1e-5)
            assert len(leaf.sampling_logprob) == len(leaf.version) == len(leaf)


@pytest.mark.parametrize(("over", "calls"), [("group", 3), ("batch", 1)])
def test_those_who_write_side_by_side_are_judged_together_whatever_the_engine_does_first(over: Over, calls: int):
    probe = Fixed(over=over, first=True)
    forest, _ = grown(probe)
    assert len(probe.asked) == calls
    if over == "group":
        assert all(len(set(trees)) == 1 for trees in probe.asked)
        for tree in forest:
            assert sum(e.kind == "note" for e in tree.events) == 1
    other = Fixed(over=over, first=True)
    again, _ = grown(other, shuffle=7)
    assert sorted(map(len, other.asked)) == sorted(map(len, probe.asked))
    assert_conserved(again, submitted=18, settled=True)


def test_the_same_seed_prunes_the_same_rollouts_in_any_order_of_the_engine():
    assert written(grown(Fixed(0.5))[0]) == written(grown(Fixed(0.5), shuffle=5)[0])


@pytest.mark.parametrize("recipe", ["treepo", "aepo", "ettrl", "rose", "mars2", "cleaner"])
def test_trees_and_dialogues_are_pruned_against_those_seen_lately(recipe: str):
    parts = load_recipe(recipe, **SMALL[recipe]).build()
    task = Walk() if "turns" in parts.strategy.needs else SpellTask()
    budget = Budget()
    forest, _ = grown(Fixed(0.4, "recent"), strategy=parts.strategy, task=task, budget=budget)
    budget.check()
    assert_conserved(forest, settled=True)
    pruned = [n for t in forest for n in t if n.status == "pruned"]
    assert pruned
    assert all("reward" not in n.scores for n in pruned)
    assert budget.spent.decoded >= sum(len(n) for t in forest for n in t if n.trainable and not n.forced)


def test_a_budget_that_ends_where_rollouts_wait_loses_nothing():
    for left in (1, 9, 20, 31):
        budget = Budget(Limits(decoded=left))
        forest, _ = grown(Fixed(0.7), budget=budget)
        budget.check()
        assert_conserved(forest, settled=True)
        assert budget.spent.decoded <= left


def test_what_cannot_be_looked_at_is_refused_before_the_first_token():
    tree = load_recipe("treepo", **SMALL["treepo"]).build().strategy
    for over, strategy, task, said in (
        ("group", tree, SpellTask(), "grows a tree; give over='recent'"),
        ("batch", Independent(2), Walk(), "plays turns of 'tiny-walk'"),
    ):
        with pytest.raises(ProbeError, match=said):
            check_probe(over, "the control", strategy, tiny_engine(), task)
    blind = tiny_engine()
    blind.capabilities = type(blind.capabilities)(frozenset({"abort"}), 64)
    with pytest.raises(ProbeError, match="needs 'hidden'"):
        check_probe("recent", "the control", tree, blind, SpellTask())
    check_probe("recent", "the control", tree, tiny_engine(), Walk())
