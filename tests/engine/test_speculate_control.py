"""What chooses the shape of guesses, on costs and chances that are written down."""

import numpy as np
import pytest
import torch

from rolltree.engine.local.speculate.control import Bandit, Resting
from rolltree.engine.local.speculate.drafter import Lead
from rolltree.engine.local.speculate.near import chances
from rolltree.engine.local.speculate.shapes import MOST, GuessWidths, Space, Spine
from rolltree.engine.local.speculate.tree import Drafts, DraftTree, Guess

ARMS = [None, GuessWidths((1,) * 2), GuessWidths((1,) * 4), GuessWidths((1,) * 8)]


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def played(cost, rate, rows, *, steps=400, outliers=0.0):
    """A bandit on a table of costs: guesses are right with probability `rate` each, up to the first wrong one."""
    clock, chance = Clock(), np.random.default_rng(0)
    bandit = Bandit(ARMS, clock=clock)
    for _ in range(steps):
        arm = bandit.shape(rows)
        depth = 0 if arm is None else len(arm.widths)
        right = [min(int(chance.geometric(1 - rate)) - 1, depth) for _ in range(rows)]
        slow = 10 if chance.random() < outliers else 1
        clock.now += slow * cost(rows, depth)
        bandit.judge(depth * rows, sum(right), rows + sum(right), clean=True)
    return bandit


def flat(rows, depth):
    """A step that costs the same up to 16 places."""
    return max(1.0, rows * (1 + depth) / 16)


@pytest.mark.parametrize(("rows", "rate", "best"), [(1, 0.9, 3), (16, 0.9, 0), (4, 0.9, 2), (1, 0.05, None)])
@pytest.mark.parametrize("outliers", [0.0, 0.05])
def test_the_bandit_finds_what_pays(rows, rate, best, outliers):
    bandit = played(flat, rate, rows, outliers=outliers)
    worth = []
    for arm in ARMS:
        depth = 0 if arm is None else len(arm.widths)
        worth.append(rows * sum(rate**k for k in range(depth + 1)) / flat(rows, depth))
    chosen = worth[bandit.best(rows)]
    assert chosen > 0.9 * max(worth)
    if best is not None:
        assert worth[best] == pytest.approx(max(worth), rel=0.25)


def test_a_fixed_shape_rests_longer_each_time_it_is_wrong():
    resting, steps = Resting(ARMS[3], 0.3, 16), []
    for _ in range(3000):
        shape = resting.shape(1)
        steps.append(shape is not None)
        if shape is not None:
            resting.judge(8, 0, 1, clean=True)
    assert sum(steps) < 6 * 32 + 1  # windows of 256 guesses, rests of 64, 128, …, 1024
    assert steps[:32] == [True] * 32
    assert steps[32 : 32 + 64] == [False] * 64
    assert steps[96]
    resting = Resting(ARMS[3], 0.3, 16)
    for right, rests in ((0, 64), (0, 128), (8, 0), (0, 64)):
        for _ in range(32):
            resting.judge(8, right, 1 + right, clean=True)
        rested = 0
        while resting.shape(1) is None:
            rested += 1
        assert rested == rests


def test_it_switches_off_where_guesses_only_cost():
    bandit = played(lambda rows, depth: 1.0 + depth, 0.3, 8)
    assert ARMS[bandit.best(8)] is None
    bucket = max(key for key in bandit.pulls)[0]
    assert bandit.pulls[bucket, 0] > 300


def test_a_step_that_read_a_prompt_teaches_nothing():
    clock = Clock()
    bandit = Bandit(ARMS, clock=clock, epsilon=0.0)
    for _ in range(10):
        bandit.shape(1)
        clock.now += 100
        bandit.judge(0, 0, 1, clean=False)
    assert bandit.best(1) == 0
    assert not bandit._rewards


def test_a_full_batch_gets_no_tree_beyond_the_bound():
    bandit = Bandit(ARMS, most=64, epsilon=1.0)
    assert {getattr(bandit.shape(32), "nodes", 0) for _ in range(50)} == {0, 2}


def test_chances_are_those_of_a_place_that_is_a_little_off():
    probs = torch.tensor([[0.2, 0.5, 0.3]], dtype=torch.float64)
    at = torch.tensor([0.69], dtype=torch.float64)
    exact = chances(probs, at, 1e-6)
    assert exact.argmax() == 1
    assert exact[0, 1] == pytest.approx(1, abs=1e-6)
    assert chances(probs, at, 1e6).tolist() == [pytest.approx([0.2, 0.5, 0.3], abs=1e-4)]
    noise = torch.from_numpy(0.69 + np.random.default_rng(0).laplace(0, 0.05, 200_000))
    inside = noise[(noise > 0) & (noise < 1)]
    share = torch.histogram(inside, torch.tensor([0.0, 0.2, 0.7, 1.0], dtype=torch.float64)).hist / len(inside)
    torch.testing.assert_close(chances(probs, at, 0.05)[0], share, atol=5e-3, rtol=0)


def grown(shape, offers, depth=8, nodes=MOST, lead=None):
    tree = DraftTree()
    growth = shape.grow(tree, Space(depth, nodes, lambda most: lead))
    try:
        asked = next(growth)
        while True:
            asked = growth.send([offers[:most] for _, most in asked])
    except StopIteration:
        return tree


def test_shapes_have_the_nodes_they_say():
    offers = [Guess(i, 0.9 / (i + 1)) for i in range(4)]
    assert grown(GuessWidths((1, 1, 3, 1)), offers).parents == [-1, 0, 1, 2, 2, 2, 3, 4, 5]
    assert grown(GuessWidths((2, 2)), offers).parents == [-1, 0, 0, 1, 1, 2, 2]
    for shape in (GuessWidths((1, 1, 3, 1)), GuessWidths((3, 2, 1)), GuessWidths((1,) * 5)):
        assert len(grown(shape, offers)) - 1 == shape.nodes
        assert len(grown(shape, offers, nodes=4)) - 1 == 4
        assert max(grown(shape, offers, depth=2).depths) == 2


def test_a_spine_gets_more_the_surer_it_is():
    offers = [Guess(50 + i, 0.3 / (i + 1)) for i in range(10)]
    lead = list(range(100, 160))
    sizes = {}
    for sure in (0.3, 0.8, 1.0):
        tree = grown(Spine(20), offers, depth=80, lead=Lead(lead, sure, 0.5))
        sizes[sure] = sum(token >= 100 for token in tree.tokens), len(tree) - 1
    assert sizes[0.3][0] < sizes[0.8][0] < sizes[1.0][0] == 60
    assert sizes[1.0][1] == 60  # a bare chain
    assert sizes[0.3][1] == 32  # the whole budget
    assert grown(Spine(20), [Guess(1, 0.001)]).tokens == [-1]


def test_drafts_know_who_follows_whom():
    tree = DraftTree()
    a = tree.add(0, Guess(7, 0.5))
    b = tree.add(0, Guess(8, 0.5))
    c = tree.add(a, Guess(9, 0.5))
    assert tree.path(c) == (7, 9)
    drafts = Drafts.of([tree, DraftTree()])
    assert not drafts.chains
    assert drafts.ancestors[0].tolist() == [
        [True, False, False, False], [True, True, False, False], [True, False, True, False], [True, True, False, True],
    ]  # fmt: skip
    assert [drafts.child(0, 0, 8), drafts.child(0, a, 9), drafts.child(0, b, 9), drafts.child(1, 0, 7)] == [b, c, 0, 0]
    assert drafts.deepest == 2
