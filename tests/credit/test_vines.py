"""Sets of vines: grouped by the state they set out from, and exactly the gradient of the set's value at that state."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest

from rolltree.credit.advantage import CreditError
from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.errors import RolltreeError
from rolltree.testing.credit import check_credit
from rolltree.testing.forests import episodes
from rolltree.tree import Tree
from rolltree.tree.table import table

REWARD = {"left": np.array([1.0, 1.0, 0.0]), "right": np.array([0.2, 0.0, 1.0])}
"""Three actions in each of two states; every action is an answer of its own."""
POLICY = {"left": np.array([0.5, 0.2, 0.3]), "right": np.array([0.6, 0.3, 0.1])}


def vined(left, right, keys=("L", "R")):
    """A tree with one main rollout through each of two states, and vines from there with these actions."""
    tree = Tree("t" + "".join(map(str, (*left, "_", *right))), [0])
    for place, taken, key in (("left", left, keys[0]), ("right", right, keys[1])):
        first = tree.extend(0, [9], birth="root", status="done")
        state = tree.extend(first, [7], role="env", status="done", state_key=key)
        tree.extend(state, [8], birth="boundary", status="done", scores={"reward": 0.5}, notes={"answer": "main"})
        for action in taken:
            tree.extend(state, [action], birth="vine", status="done", scores={"reward": float(REWARD[place][action])},
                        notes={"answer": str(action)})  # fmt: skip
    return tree


def value(place, members, size, kind):
    """E f over one set of i.i.d. actions is what training should climb; here f of one set."""
    reward = REWARD[place][list(members)].mean()
    distinct = len(set(members))
    diverse = 0.0 if distinct == 1 and size > 1 else distinct / size
    return reward * diverse if kind == "product" else reward + diverse


def true_gradient(place, size, kind):
    """∇ of E f with respect to the logits of one state, by writing out every set."""
    p = POLICY[place]
    out = np.zeros(3)
    for members in product(range(3), repeat=size):
        score = np.bincount(members, minlength=3) - size * p
        out += np.prod(p[list(members)]) * value(place, members, size, kind) * score
    return out


@pytest.mark.parametrize(
    ("n", "size", "kind"), [(4, 2, "product"), (4, 3, "product"), (3, 2, "sum"), (3, 1, "product")]
)
def test_the_mean_update_is_the_true_gradient_at_each_state(n, size, kind):
    """Every outcome of n vines at both states is written out; the two states are filled independently of each other."""
    outcomes = list(product(range(3), repeat=n))
    rng = np.random.default_rng(0)
    pairs = list(zip(outcomes, (outcomes[i] for i in rng.permutation(len(outcomes))), strict=True))
    tab = table([vined(*pair) for pair in pairs])
    got = load_credit("set_shared", size=size, kind=kind, by="vine")(tab)
    assert got.leaf is None
    vines = [i for i, node in enumerate(tab.nodes) if node.birth == "vine"]
    assert not np.delete(got.node, vines).any()
    credit = got.node[vines].reshape(len(pairs), 2, n)
    for s, place in enumerate(("left", "right")):
        mean = np.zeros(3)
        for pair, row in zip(pairs, credit[:, s], strict=True):
            for action, a in zip(pair[s], row, strict=True):
                mean += np.prod(POLICY[place][list(pair[s])]) * a * (np.eye(3)[action] - POLICY[place])
        np.testing.assert_allclose(mean, (n / size - 1) * true_gradient(place, size, kind), atol=1e-12)


def test_a_members_advantage_is_the_mean_of_its_sets_less_that_of_all():
    taken = (0, 1, 2, 2)
    got = load_credit("set_shared", size=2, by="vine")(table([vined(taken, (0, 0, 0, 0))])).node
    f = {pair: value("left", [taken[i] for i in pair], 2, "product") for pair in combinations(range(4), 2)}
    wanted = [np.mean([v for pair, v in f.items() if i in pair]) - np.mean(list(f.values())) for i in range(4)]
    np.testing.assert_allclose(got[4:8], wanted)
    np.testing.assert_allclose(got[8:], 0)  # the other state's vines are all alike


def test_states_with_one_key_are_pooled_only_by_state():
    tree = vined((0, 0, 0, 0), (2, 2, 2, 2), keys=("S", "S"))
    assert not load_credit("set_shared", size=2, by="vine")(table([tree])).node.any()
    pooled = load_credit("set_shared", size=2, by="state")(table([tree])).node
    assert pooled.any()
    other = vined((0, 0, 0, 0), (2, 2, 2, 2))
    assert not load_credit("set_shared", size=2, by="state")(table([other])).node.any()
    with pytest.raises(CreditError, match="no state key"):
        load_credit("set_shared", by="state")(table([vined((0,), (1,), keys=(None, None))]))


def test_a_window_ends_after_so_many_turns_and_the_rest_gets_the_return():
    tree = Tree("t", [0])
    main = tree.extend(0, [1], birth="root", status="done", scores={"reward": 1.0}, notes={"answer": "m"})
    tree.extend(0, [1], birth="root", status="done", scores={"reward": 0.0}, notes={"answer": "n"})
    leaves = []
    for reward, answer in ((1.0, "a"), (1.0, "b"), (0.0, "a")):
        here = tree.extend(0, [2], birth="vine", status="done")
        for _ in range(2):
            here = tree.extend(tree.extend(here, [7], role="env", status="done"), [3], birth="boundary", status="done")
        here.scores["reward"], here.notes["answer"] = reward, answer
        leaves.append(here)
    tab = table([tree])
    rows = {node.id: i for i, node in enumerate(tab.nodes)}
    for window, near in ((1, 1), (2, 2), (0, 3)):
        nothing = load_credit("set_shared", size=2, by="vine", window=window)(tab).node
        group = load_credit("set_shared", size=2, by="vine", window=window, elsewhere="group")(tab).node
        for leaf, away in zip(leaves, (1 / 3, 1 / 3, -2 / 3), strict=True):
            path = [rows[n.id] for n in tree.path(leaf) if n.role == "policy"]
            whole = load_credit("set_shared", size=2, by="vine")(tab).node[path[0]]
            np.testing.assert_allclose(nothing[path], [whole] * near + [0.0] * (3 - near))
            np.testing.assert_allclose(group[path], [whole] * near + [away] * (3 - near))
        assert (group[rows[main.id]], nothing[rows[main.id]]) == (0.5, 0.0)


def test_vines_do_not_speak_for_the_way_that_led_to_them():
    """The actions before a vine's state are credited by their own rollout, once, however many vines hang below."""
    few, many = vined((0, 1), (0, 0)), vined((0, 1) * 4, (0, 0))
    before = []
    for tree in (few, many):
        tree[3].scores["reward"] = 1.0
        tab = table([tree])
        advantage = load_credit("set_shared", size=2, by="vine", elsewhere="group")(tab)
        folded = fold(tab, advantage, (leaf_weights(tab, "token") > 0).astype(float), "once")
        before.append((folded.gain + folded.loss)[tab.start[1]])
    assert before == [pytest.approx(0.25)] * 2


@pytest.mark.parametrize("by", ["vine", "state"])
def test_it_keeps_the_contract_of_credits_by_vine_too(by):
    def grow(rng):
        trees = episodes(rng)
        for tree in trees:
            for node in tree:
                node.state_key = node.state_key or "s"
                for k, child in enumerate(tree.children(node)):
                    if k and child.role == "policy":
                        child.birth = "vine"
        return trees

    check_credit(load_credit("set_shared", size=2, by=by, window=1, elsewhere="group"), grow=grow)


@pytest.mark.parametrize("knobs", [{"by": "vines"}, {"elsewhere": "critic"}, {"size": 0}, {"kind": "mean"}])
def test_unknown_choices_are_refused(knobs):
    with pytest.raises(RolltreeError, match="set_shared"):
        load_credit("set_shared", **knobs)(table([vined((0, 1), (1, 2))]))
