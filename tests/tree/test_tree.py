"""What a tree refuses, and what each operation says about the nodes it touched."""

import numpy as np
import pytest

from rolltree.tree import Top, Tree, TreeError


def grown() -> Tree:
    tree = Tree("t", [1, 2, 3])
    tree.extend(
        0, [4, 5], logp=[-1, -2], sampling_logprob=[-1, -2], entropy=[1, 2], scores={"reward": 1.0}, status="done"
    )
    return tree


def test_a_cut_prompt_keeps_its_tree():
    tree = grown()
    head = tree.cut(0, 2)
    assert tree.root is head
    assert head.parent is None
    assert [n.id for n in tree] == [head.id, 0, 1]
    assert tree.prefix(1).tolist() == [1, 2, 3, 4, 5]
    assert [n.id for n in tree.leaves()] == [1]


def test_cut_leaves_scores_and_finish_on_the_tail():
    tree = grown()
    tree[1].finish, tree[1].usage = "eos", "trained"
    head = tree.cut(1, 1)
    assert (head.scores, head.finish, head.usage, head.status) == ({}, None, "", "done")
    assert (tree[1].scores, tree[1].finish, tree[1].birth) == ({"reward": 1.0}, "eos", "boundary")
    assert tree.events[-1].numbers == {"head": head.id, "at_action": 1}


def test_a_fork_is_a_cut_and_a_new_child_of_the_head():
    tree = grown()
    head = tree.cut(1, 1)
    other = tree.extend(head, [9], birth="forced", forced=True)
    assert [tree.prefix(n).tolist() for n in tree.leaves()] == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 9]]
    assert other.trainable
    assert tree.extend(head, [7], role="env").trainable is False


def test_arrays_get_their_types_and_must_fit():
    node = grown().extend(1, [6], logp=[-0.5], version=[3], keep=[1])
    assert [a.dtype.name for a in (node.actions, node.logp, node.version, node.keep)] == [
        "int32", "float32", "int32", "bool",
    ]  # fmt: skip
    with pytest.raises(TreeError, match="node 2 of tree 't': sampling_logprob has 2 entries for 1 actions"):
        grown().extend(1, [6], sampling_logprob=[-0.5, -1])
    with pytest.raises(TreeError, match=r"logp has shape \(1, 2\) for 1 actions"):
        grown().extend(1, [6], logp=[[-0.5, -1]])
    with pytest.raises(TreeError, match=r"top has ids of shape \(2, 3\) and logp of shape \(2, 3\) for 1 actions"):
        grown().extend(1, [6], top=Top(np.zeros((2, 3), np.int32), np.zeros((2, 3), np.float32)))


def test_a_list_beyond_32_bits_is_not_wrapped_around():
    assert Tree("t", [2**40]).root.actions.tolist() == [2**40]


def test_a_list_of_latents_takes_the_type_of_its_parent():
    tree = Tree("t", np.zeros((1, 2), np.float32))
    assert tree.extend(0, [[0.5, 1.5]]).actions.dtype == np.float32
    assert tree.extend(0, []).actions.shape == (0, 2)


def test_append_fills_what_one_side_lacks():
    tree = Tree("t", [1])
    node = tree.extend(0, [2], logp=[-1.0], gain=[0.5])
    tree.append(node, [3], version=[7], keep=[False])
    assert node.actions.tolist() == [2, 3]
    np.testing.assert_array_equal(node.logp, np.array([-1, np.nan], np.float32))
    assert node.version.tolist() == [-1, 7]
    assert node.keep.tolist() == [True, False]
    assert node.gain.tolist() == [0.5, 0.0]


@pytest.mark.parametrize(
    ("arrays", "said"),
    [({"logp": [-1]}, "logp has 1 entries for 2 appended"), ({"logits": [1, 2]}, "does not know the array 'logits'")],
)
def test_an_append_that_fails_changes_nothing(arrays: dict[str, list[float]], said: str):
    tree = Tree("t", [1])
    node = tree.extend(0, [2], entropy=[0.5])
    with pytest.raises(TreeError, match=said):
        tree.append(node, [3, 4], **arrays)
    assert node.actions.tolist() == [2]
    assert node.entropy.tolist() == [0.5]


def test_alternatives_are_joined_or_dropped_never_misaligned():
    tree = Tree("t", [1])
    top = Top(np.zeros((1, 2), np.int32), np.zeros((1, 2), np.float32))
    node = tree.extend(0, [2], top=top)
    tree.append(node, [3], top=top)
    assert node.top.ids.shape == (2, 2)
    tree.append(node, [4])
    assert node.top is None


@pytest.mark.parametrize("status", ["pruned", "failed"])
def test_nothing_grows_below_a_dead_node(status: str):
    tree = grown()
    tree.extend(1, [8])
    tree[1].status = status
    for grow in (
        lambda: tree.extend(1, [6]),
        lambda: tree.graft(1, grown(), 1),
        lambda: tree.splice(tree[2], tree[2], None, why="x"),
    ):
        with pytest.raises(TreeError, match=f"node 1 of tree 't': it is {status}; use one of its live ancestors"):
            grow()
    assert len(tree) == 3


def test_a_pruned_leaf_takes_what_was_in_flight_and_a_failed_one_nothing():
    tree = grown()
    leaf = tree.leaves()[0]
    before = len(leaf)
    tree.prune(leaf, "enough")
    tree.append(leaf, [6])
    assert (len(leaf), leaf.status) == (before + 1, "pruned")
    leaf.status = "failed"
    with pytest.raises(TreeError, match="it is failed"):
        tree.append(leaf, [7])


def test_a_graft_is_a_copy():
    tree, other = grown(), grown()
    copy = tree.graft(0, other, 1)
    copy.actions[0], copy.logp[0] = 99, 99
    assert other[1].actions.tolist() == [4, 5]
    assert other[1].logp.tolist() == [-1, -2]
    assert (copy.birth, copy.scores) == ("graft", {"reward": 1.0})


def test_a_splice_forgets_what_depended_on_the_removed_context():
    tree = grown()
    fixed = tree.extend(1, [6, 7], logp=[-1, -1], sampling_logprob=[-1, -1], entropy=[1, 1], version=[4, 4])
    leaf = tree.splice(fixed, tree[1], fixed, why="the call failed")
    assert tree.prefix(leaf).tolist() == [1, 2, 3, 6, 7]
    assert (leaf.logp, leaf.sampling_logprob, leaf.entropy, leaf.top) == (None, None, None, None)
    assert leaf.version.tolist() == [4, 4]
    assert fixed.sampling_logprob.tolist() == [-1, -1]
    assert tree.events[-1].numbers == {"removed": [1], "original": fixed.id}
    with pytest.raises(TreeError, match="from its root on: nothing would remain"):
        tree.splice(fixed, tree.root, fixed, why="x")
    with pytest.raises(TreeError, match="the replacement precedes the span"):
        tree.splice(fixed, fixed, tree[1], why="x")
