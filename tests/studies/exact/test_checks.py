"""The small worlds behind the evidence of credit and objective recipes: what they are made of; seeds decide."""

from __future__ import annotations

import numpy as np
import pytest

from rolltree.credit.registry import load_credit
from rolltree.generate.forkall import ForkAll
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.registry import load_recipe
from rolltree.tree import Tree
from rolltree_papers.brorl import BroRl
from studies.exact import broad, checks, judged, languages, modes, play, swarm, votes
from studies.exact.checks import noise
from studies.exact.languages import BAD, TOKENS, bad_rate, corpus, lost_at, mended, written
from studies.exact.problem import solve
from studies.exact.problems import PROBLEMS
from studies.prompts import chain


def test_a_mended_text_has_no_bad_tokens_and_the_found_one_breeds_them() -> None:
    distribution = corpus(np.random.default_rng(0))
    np.testing.assert_allclose(distribution.sum(1), 1)
    np.testing.assert_allclose(mended(distribution).sum(1), 1)
    assert bad_rate(mended(distribution)) == 0
    assert bad_rate(distribution) > 0.2
    rng = np.random.default_rng(1)
    seen = np.mean([token < BAD for _ in range(800) for token in written(distribution, int(rng.integers(BAD)), rng)])
    assert seen == pytest.approx(bad_rate(distribution), abs=0.05)
    assert all(token >= BAD for token in written(mended(distribution), 0, rng))


def test_preference_lowers_the_bad_rate_and_the_seed_decides() -> None:
    first, again = (languages.judged("preference", 3, steps=4, prefixes=6) for _ in range(2))
    assert first == again
    assert first[-1] < first[0]
    assert languages.judged("found", 3, steps=1, prefixes=2)[0] == first[0]
    assert TOKENS > BAD


def test_fine_tuning_starts_where_the_first_language_was_learned() -> None:
    curves = [
        languages.tuned(load_objective(name, **knobs), 0, steps=3)
        for name, knobs in (("reinforce", {}), ("one_token", {"kappa": 1.2}))
    ]
    assert curves[0][0] == curves[1][0]
    assert curves[0][0][1] == 0
    assert curves[0][-1] != curves[1][-1]
    assert lost_at([(0.1, 0.0), (0.4, 2.0), (0.6, 3.0)], 0.3) == 2.0
    assert lost_at([(0.1, 0.0), (0.2, 1.0)], 0.9) == 1.0


def test_an_exact_judge_without_a_leak_teaches_quality() -> None:
    curve = judged.qualities(load_credit("grpo"), 0, leak=0.0, noise=0.0)
    assert curve[0] == pytest.approx(0.5)
    assert curve[-1] > 0.95


def test_more_rollouts_are_less_noisy_and_make_more_calls() -> None:
    (few, used), (many, more) = noise("rloo", 2, "flat", 0), noise("rloo", 8, "flat", 0)
    assert many < few
    assert more > 3 * used


def test_portool_is_measured_on_the_forks_of_its_own_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    grown: list[ForkAll] = []

    async def grow_tree(self, tree, hand):  # type: ignore[no-untyped-def]
        grown.append(self)
        await original(self, tree, hand)

    original = ForkAll.grow_tree
    monkeypatch.setattr(ForkAll, "grow_tree", grow_tree)
    monkeypatch.setattr(checks, "TREES", 60)
    first = checks.portool(0)
    assert len(grown) == 60
    assert checks.portool(0) == first
    assert first.value > 0


def test_a_played_problem_has_the_problems_distribution() -> None:
    """What independent rollouts earn is what enumeration says, and rows are those the actions were drawn from."""
    problem = PROBLEMS["tools"]()
    trees = play.grown(problem, Independent(4), seed=3, trees=150)
    earned = np.array([leaf.scores["reward"] for tree in trees for leaf in tree.leaves()])
    truth = solve(problem).objective
    assert earned.mean() == pytest.approx(truth, abs=4 * np.sqrt(truth * (1 - truth) / len(earned)))
    for tree in trees[:10]:
        for node in tree:
            if node.trainable:
                assert np.exp(node.logp[0]) == pytest.approx(  # type: ignore[index]
                    problem.policy[int(node.notes["row"][0]), node.actions[0]], rel=1e-4
                )


def test_masked_hints_are_not_unlearned() -> None:
    """After one step the shown digits of a hint whose rollouts mostly failed are less likely only without the mask."""
    policy = chain._softmax(chain.start(np.random.default_rng(0)))[0]
    tree = chain.Tree("p0", [0])
    rng = np.random.default_rng(2)
    for _ in range(8):
        chain._rolled(tree, policy, 4, rng)
    leaves = tree.leaves()
    for i, leaf in enumerate(leaves):
        leaf.scores["reward"] = float(i == 0)
    pushes = [
        chain._direction([tree], policy[None], chain.HintWay(lambda _: 0.5, "hinted", masked))[0, :4, 0]
        for masked in (True, False)
    ]
    assert (pushes[0] >= 0).all()
    assert np.abs(pushes[0] - pushes[1]).max() > 0
    np.testing.assert_allclose(chain.success(np.zeros((1, 8, 10))), 1e-8)


def test_wide_and_usual_groups_cost_as_many_rollouts_and_learn_from_variance_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = dict[int, int]()

    def counted(logits, parts, group, rng):  # type: ignore[no-untyped-def]
        drawn[group] = drawn.get(group, 0) + group
        return original(logits, parts, group, rng)

    original = broad.step
    monkeypatch.setattr(broad, "step", counted)
    for group in (BroRl().group, broad.USUAL):
        broad.learned(group, 1.0, 0)
    assert set(drawn.values()) == {broad.ROLLOUTS}
    wrong = np.zeros((2, broad.ANSWERS))
    wrong[:, broad.RIGHT + 1] = 100.0
    push, seen = original(wrong, load_recipe("brorl").build(), 16, np.random.default_rng(0))
    assert not push.any()
    assert seen == 1


def test_a_fixed_cost_is_told_to_calls_and_to_thought_alone() -> None:
    tree = Tree("t", [0])
    for mode in (0.0, 1.0):
        tree.extend(0, [1], status="done", scores={"reward": 1.0, "mode": mode})
    called = tree.extend(tree.extend(0, [1], status="done"), [2], role="env", status="done")
    tree.extend(called, [3], status="done", scores={"reward": 1.0})
    modes.Cost()(tree, 48)
    assert [leaf.scores["reward"] for leaf in tree.leaves()] == pytest.approx([1.0, 0.8, 0.8])


def test_what_the_arms_of_modes_count_rests_under_a_fixed_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(modes, "STEPS", 5)
    for name, run in (("a2fm", modes.routed), ("adaptive_pixel", lambda *a: modes.trained(a[0], modes.KINDS, *a[1:]))):
        parts = load_recipe(name).build()
        assert run(0, parts.shapers[0], parts.credit)[1] > 0
        assert run(0, modes.Cost(), parts.credit)[1] == 0


def test_nodes_that_read_their_past_are_a_swarm_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The arms differ in whose groups stand in the other half: no foreign group is in either baseline."""
    monkeypatch.setattr(swarm, "ROUNDS", 4)
    found = {reads: swarm.trained(0, reads) for reads in ("others", "its past", "nothing")}
    foreign = {reads: sum(node.foreign for node in nodes) for reads, nodes in found.items()}
    assert foreign["others"] > 0
    assert foreign["its past"] == foreign["nothing"] == 0
    drawn = {reads: sum(node.drawn for node in nodes) for reads, nodes in found.items()}
    full = swarm.NODES * swarm.ROUNDS * swarm.PER_ROUND * swarm.GROUP
    assert drawn["nothing"] == full
    assert full / 2 <= drawn["others"] < full
    assert full / 2 <= drawn["its past"] < full


def test_labels_that_say_nothing_cost_as_many_rollouts_and_are_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(votes, "STEPS", 2)
    runs = [votes.trained(0, voted=voted) for voted in (True, False)]
    assert runs[0][1] == runs[1][1] == 2 * votes.VOTES
    assert runs[0][0] != runs[1][0]
    tree = Tree("t", [0])
    for answer in "aabc":
        tree.extend(0, [1], status="done", scores={"reward": 0.0}, notes={"answer": answer})
    votes.AnyAnswer(np.random.default_rng(0))(tree, 1)
    assert len({leaf.notes["answer"] for leaf in tree.leaves() if leaf.scores["reward"]}) == 1
