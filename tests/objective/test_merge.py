"""Micro-batches: with step-wide statistics fixed, their losses add up to the loss of the whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from rolltree.objective.batch import fit, merge
from rolltree.objective.correction import ImportanceWeight, Reject, SecondMoment
from rolltree.objective.registry import load_objective
from rolltree.testing.objective import random_pair
from tests.objective.test_contract import VARIANTS

WITHIN_BATCH = {"clip_cov", "clip_cov-much"}
"""Draws that depend on the place in the batch."""
MORE = {
    "normalised": load_objective("gspo", correction=ImportanceWeight("sequence", normalise=True)),
    "surviving": load_objective("clipped", correction=Reject("token", low=0.7, high=1.5, denominator="surviving")),
    "m2po-surviving": load_objective("bapo", correction=SecondMoment(0.1, denominator="surviving"), target=0.6),
}


def parts_with_own_groups() -> list:
    parts = [random_pair(s).folded for s in (1, 2, 3)]
    return [replace(part, paths=replace(part.paths, group=part.paths.group + 10 * k)) for k, part in enumerate(parts)]


@pytest.mark.papers("bapo")
@pytest.mark.parametrize("name", [n for n in (*VARIANTS, *MORE) if n not in WITHIN_BATCH])
def test_losses_of_micro_batches_add_up(name: str) -> None:
    parts = parts_with_own_groups()
    whole = merge(parts)
    base = VARIANTS.get(name) or MORE[name]
    if "logits" in base.needs:
        whole = replace(whole, logits=torch.cat([p.logits for p in parts]))
    objective = fit(base, parts)
    total = sum(objective(part)[0].item() for part in parts)
    assert total == pytest.approx(objective(whole)[0].item(), abs=1e-10)
    assert base(whole)[0].item() == pytest.approx(total, abs=1e-10)


def test_a_field_that_one_part_lacks_is_left_out() -> None:
    parts = parts_with_own_groups()
    parts[1] = replace(parts[1], sampled=None, paths=replace(parts[1].paths, group=None))
    whole = merge(parts)
    assert whole.sampled is None
    assert whole.paths.group is None
    assert merge([*parts[:1], replace(parts[1], paths=None)]).paths is None


@pytest.mark.papers("bapo")
def test_fitting_through_a_composition_sees_the_corrected_credit() -> None:
    parts = parts_with_own_groups()
    composed = fit(load_objective("bapo", correction="mis", target=0.6), parts)
    corrected = [composed.corrections[0](part)[0] for part in parts]
    assert composed.surrogate.bounds == fit(load_objective("bapo", target=0.6), corrected).bounds
    assert fit(load_objective("clipped"), parts) == load_objective("clipped")
