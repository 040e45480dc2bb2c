from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import credits, load_credit
from rolltree.errors import RolltreeError
from rolltree.testing.credit import Claims, check_credit
from rolltree.testing.forests import episodes, plans
from rolltree.tree import Top, Tree
from rolltree.tree.table import table

STEP_WIDE = {
    "reinforce_pp", "reinforce_pp_baseline", "nested", "entropy_scaled", "entropy_confidence", "entropy_bonus",
    "redistributed", "downsampled", "prior_baseline", "hiper",
}  # fmt: skip
SHIFTED = {"grpo", "dr_grpo", "rloo", "opo", "mc_grpo", "optimal_baseline", "token_group", "nested", "node_delta",
           "global_plus_local", "sibling", "himac", "designer_executor", "shared_mean", "reinforce_pp",
           "reinforce_pp_baseline", "entropy_scaled", "entropy_response", "entropy_confidence"}  # fmt: skip
LINEAR = {"dr_grpo", "rloo", "opo", "node_delta", "global_plus_local", "sibling"}
FREE = {"grpo", "reinforce_pp", "reinforce_pp_baseline", "nested", "token_group", "shared_mean"}
ZERO = {"grpo": "leaves", "dr_grpo": "leaves", "rloo": "leaves"}


@pytest.mark.papers("himac", "hiper", "mc_grpo")
@pytest.mark.parametrize("name", credits())
def test_every_credit_keeps_the_contract(name):
    scale = "linear" if name in LINEAR else "free" if name in FREE else None
    check_credit(
        load_credit(name),
        Claims(shift=name in SHIFTED, scale=scale, zero_sum=ZERO.get(name), per_tree=name not in STEP_WIDE),
    )


@dataclass(frozen=True)
class Broken:
    how: str
    needs = frozenset({"reward"})

    def __call__(self, table):
        if self.how == "nan":
            return Advantage(leaf=np.nan_to_num(table.reward, posinf=1))
        leaf = outcomes(table)
        if self.how == "order":
            leaf = leaf * np.arange(len(leaf))
        if self.how == "failed":
            leaf = leaf - len(leaf)
        if self.how == "writes" and len(leaf):
            table.nodes[-1].scores["seen"] = 1.0
        if self.how == "bound":
            leaf = leaf * 1000
        if self.how == "step":
            leaf = leaf - leaf.sum()
        return Advantage(leaf=leaf)


@pytest.mark.parametrize(
    ("how", "says"),
    [("nan", "accepted"), ("order", "reverse"), ("failed", "added"), ("writes", "only read"), ("bound", "exceeds"),
     ("step", "other trees")],
)  # fmt: skip
def test_the_contract_finds_broken_credits(how, says):
    with pytest.raises(AssertionError, match=says):
        check_credit(Broken(how))


def test_names_and_knobs_are_suggested():
    with pytest.raises(RolltreeError, match="did you mean 'gigpo'"):
        load_credit("giggpo")
    with pytest.raises(RolltreeError, match="did you mean 'omega'"):
        load_credit("gigpo", omga=1)


def bare(name: str, length: int) -> list[Tree]:
    """One tree with one leaf of so many actions, and everything else a credit may ask for."""
    [tree] = plans(np.random.default_rng(0), prompts=1) if "level:1" in load_credit(name).needs else episodes(
        np.random.default_rng(0), prompts=1, group=1
    )  # fmt: skip
    for leaf in tree.leaves()[1:]:
        leaf.status = "failed"
    for node in tree:
        if not node.trainable:
            continue
        node.actions = node.actions[:length]
        for array in ("logp", "entropy"):
            if getattr(node, array) is not None:
                setattr(node, array, getattr(node, array)[:length])
        if node.top is not None:
            node.top = Top(node.top.ids[:length], node.top.logp[:length])
        node.notes.update({k: v[:length] for k, v in node.notes.items() if isinstance(v, np.ndarray)})
        if length == 0:
            node.notes.pop("spans", None)
    return [tree]


def refusal(credit, tab) -> str:
    try:
        credit(tab)
    except CreditError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", credits())
def test_one_leaf_and_runs_without_actions_are_no_special_case(name):
    credit = load_credit(name)
    alone = table(bare(name, 3))
    advantage = credit(alone)
    folded = fold(alone, advantage, leaf_weights(alone, "sequence", counted=advantage.counted))
    assert np.isfinite(folded.gain + folded.loss).all()
    empty = table(bare(name, 0))
    said = refusal(credit, empty)
    assert "node" in said or not said
    if not said:
        advantage = credit(empty)
        folded = fold(empty, advantage, leaf_weights(empty, "sequence", counted=advantage.counted))
        assert not folded.weight.any()


@pytest.mark.parametrize("name", credits())
def test_masked_actions_and_several_versions_change_nothing_else(name):
    """Masked actions get nothing, whatever stands in their arrays; which version wrote an action changes nothing."""
    make = plans if "level:1" in load_credit(name).needs else episodes
    tab = table(make(np.random.default_rng(4)))
    for i, node in enumerate(tab.nodes):
        if node.trainable and len(node) > 1:
            node.keep = np.arange(len(node)) > 0
            node.version = np.arange(len(node), dtype=np.int32) + i % 3
            for array in ("logp", "entropy"):
                if getattr(node, array) is not None:
                    getattr(node, array)[0] = np.nan
    tab = table(tab.trees)
    credit = load_credit(name)
    advantage = credit(tab)
    folded = fold(tab, advantage, leaf_weights(tab, "token", counted=advantage.counted))
    assert not folded.weight[~tab.loss_mask].any()
    assert np.isfinite(folded.gain + folded.loss).all()
    for node in tab.nodes:
        node.version = None
    again = credit(table(tab.trees))
    for term in ("leaf", "node", "action", "factor"):
        old, new = getattr(advantage, term), getattr(again, term)
        assert (old is None and new is None) or np.array_equal(old, new)
