"""The tree of a page: which one is chosen, what it says, and that texts in it stay text."""

import numpy as np
import pytest

from rolltree.compare.report import Page, html
from rolltree.compare.report.branch import chosen_tree
from rolltree.tree import Node, Tree
from rolltree.tree.store.parquet import save_step


def grown(name, *, deep, rewards=(1.0, 0.0)):
    """A prompt, a call, its answer and two leaves; in a flat one both leaves stand below the prompt."""
    tree = Tree.empty(name)

    def add(id, parent, role, text, **more):
        actions = np.frombuffer(text.encode(), np.uint8).astype(np.int32)
        return tree.adopt(Node(id=id, parent=parent, role=role, actions=actions, status="done", **more))

    add(0, None, "prompt", "ask ")
    if deep:
        add(1, 0, "policy", "call ")
        tree.event("fork", add(2, 1, "env", "<b>4</b>"), "odds of 0.5")
    for i, reward in enumerate(rewards):
        add(3 + i, 2 if deep else 0, "policy", f"={i}", scores={"reward": reward}, finish="stop")
    return tree


def decode(actions):
    return bytes(actions.tolist()).decode()


@pytest.mark.papers("arpo")
def test_the_tree_that_forks_below_its_prompt_into_right_and_wrong_is_shown(tmp_path):
    save_step([grown("old", deep=True)], tmp_path / "forests", 1)
    forest = [grown("flat", deep=False), grown("same", deep=True, rewards=(1.0, 1.0)), grown("mixed", deep=True)]
    save_step(forest, tmp_path / "forests", 4)
    made = chosen_tree([str(tmp_path)], decode, "arpo")
    assert made is not None
    assert made.title == "A tree that arpo grew at step 4"
    assert (made.root.right, made.root.leaves) == (1, 2)
    assert made.root.words == (("prompt", "ask "), ("policy", "call "), ("env", "<b>4</b>"))
    assert made.root.reasons == ("fork: odds of 0.5",)
    shown = html(Page("t", "l", trees=[made]))
    assert "◆ 2 ways, 1 of 2 right" in shown
    assert "⟵ &lt;b&gt;4&lt;/b&gt;" in shown
    assert shown.count("<details open>") == 1


def test_flat_groups_have_no_tree_to_show(tmp_path):
    save_step([grown("flat", deep=False)], tmp_path / "forests", 4)
    assert chosen_tree([str(tmp_path)], decode, "grpo") is None
