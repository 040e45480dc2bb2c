from __future__ import annotations

import pytest

from rolltree.integrations.errors import AdaptError
from rolltree.integrations.trl import grpo_settings
from rolltree.recipe.registry import load_recipe


@pytest.mark.papers("latr")
def test_a_clipped_objective_is_said_in_trls_words():
    assert grpo_settings("treepo") == {
        "loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "delta": 10.0, "beta": 0.0, "scale_rewards": "none",
    }  # fmt: skip
    told = grpo_settings(load_recipe("latr", kl=0.01, clip_high=0.3))
    assert (told["loss_type"], told["beta"], told["epsilon_high"], told["delta"]) == ("grpo", 0.01, 0.3, None)
    assert grpo_settings("dr_grpo")["loss_type"] == "dr_grpo"


def test_an_objective_without_a_counterpart_is_refused():
    with pytest.raises(AdaptError, match=r"the objective of the recipe 'gspo'.*loss_type"):
        grpo_settings("gspo")
