from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rolltree.contract.credit import Claims, check_credit
from rolltree.credit.advantage import Advantage, CreditError
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import credits, load_credit

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
    with pytest.raises(CreditError, match="did you mean 'gigpo'"):
        load_credit("giggpo")
    with pytest.raises(CreditError, match="did you mean 'omega'"):
        load_credit("gigpo", omga=1)
