"""No leaf disappears, and none leaves without a reason."""

import pytest

from rolltree.tree import Tree
from rolltree.tree.forest import Account, AccountError, account, assert_conserved


def grown() -> Tree:
    tree = Tree("t", [1])
    for i in range(7):
        tree.extend(0, [i], status="done")
    tree[1].usage = "trained"
    tree[2].usage = "dropped: zero variance"
    tree.prune(tree[3], "similar")
    tree.close(tree[4], "failed", "error", "verifier crashed: ZeroDivisionError")
    tree[5].status = "open"
    tree.pause(tree[5], "round over")
    return tree


def test_every_leaf_has_one_end():
    found = assert_conserved([grown()], submitted=7)
    assert (found.trained, found.kept, found.running) == (1, 2, 1)
    assert found.dropped == {
        "zero variance": 1, "pruned: similar": 1, "failed: verifier crashed: ZeroDivisionError": 1,
    }  # fmt: skip
    assert found.leaves == 7
    assert (found + found).leaves == 14
    assert Account() + found == found


def test_pruning_a_branch_explains_every_leaf_below_also_after_cuts_and_grafts():
    tree = Tree("t", [1])
    branch = tree.extend(0, [2, 3, 4])
    tree.close(tree.extend(branch, [5]), "failed", "error", "tool died")
    tree.extend(branch, [6])
    tree.prune(branch, "hopeless")
    tree.cut(branch, 2)
    assert account([tree]).dropped == {"failed: tool died": 1, "pruned: hopeless": 1}
    other = Tree("u", [1])
    other.graft(0, tree, branch)
    assert account([other]).dropped == {"failed: before the graft": 1, "pruned: before the graft": 1}


def test_a_prompt_nothing_grew_from_still_counts():
    assert account([Tree("t", [1])]).running == 1


@pytest.mark.parametrize(
    ("status", "usage", "said"),
    [
        ("pruned", "", "leaf 6 of tree 't' is pruned, but no event says why"),
        ("failed", "", "leaf 6 of tree 't' is failed, but no event says why"),
        ("done", "dropped", "leaf 6 of tree 't' has the usage 'dropped'"),
        ("done", "dropped: ", "has the usage 'dropped: '"),
        ("done", "used", "neither 'trained' nor 'dropped: reason'"),
    ],
)
def test_a_leaf_that_leaves_without_a_reason_is_named(status: str, usage: str, said: str):
    tree = grown()
    tree[6].status, tree[6].usage = status, usage
    with pytest.raises(AccountError, match=said):
        assert_conserved([tree])
    assert account([tree]).leaves == 7


def test_lost_leaves_are_found():
    tree = grown()
    with pytest.raises(AccountError, match="8 leaves were submitted, but the forest holds 7: 1 trained, 2 kept"):
        assert_conserved([tree], submitted=8)
    with pytest.raises(AccountError, match="1 leaves are still open or paused where all should have ended"):
        assert_conserved([tree], settled=True)
    tree.root.children.remove(6)
    with pytest.raises(AccountError, match="node 6 of tree 't' cannot be reached from its root"):
        assert_conserved([tree])
