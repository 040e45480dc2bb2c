"""What `gdro` promises beside what all of its kind do."""

import numpy as np
import pytest

from rolltree_papers.gdro import study as gdro_study
from rolltree_papers.gdro.study import prompt_gdro
from studies.prompts.world import run


def test_weights_of_mean_one_keep_their_order():
    """Nothing is learned at a higher rate: the mean over a step's prompts is 1."""
    logs = run(gdro_study.MeanOne(gdro_study.PromptGdro()), gdro_study.skewed(0), 20)
    for log in logs:
        weights = [d.order.marks["prompt_weight"] for d in log.delivered]
        assert np.mean(weights) == pytest.approx(1)
    assert len(set(weights)) > 1


def test_the_claim_holds_on_simulated_prompts():
    found, again = prompt_gdro(0), prompt_gdro(0)
    assert found.value > found.baseline
    assert (again.value, again.baseline) == (found.value, found.baseline)
