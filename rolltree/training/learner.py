"""From a model to a learner: precision, adapters, optimizer, and the fixed policies that the objective asks for."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

import torch

from rolltree.control.schedule import ScheduleCorrection
from rolltree.objective.batch import Objective
from rolltree.objective.clipped import Clipped
from rolltree.objective.compose import Composed
from rolltree.objective.correction import ImportanceWeight
from rolltree.objective.decoupled import Decoupled
from rolltree.objective.hooks import accumulator_of
from rolltree.policy.device import HALF, Compute, narrowed, place
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.lora import Unadapted, with_lora
from rolltree.policy.precision import round_forward
from rolltree.policy.protocol import OwnPolicy, Policy, policy_of
from rolltree.recipe.compose import moving
from rolltree.recipe.recipe import Parts
from rolltree.training.config import Optim, TrainConfig, TrainError
from rolltree.training.memory import keep_freed
from rolltree.training.optimizer import make_optimizer, optim_at
from rolltree.training.step import Learner

# What an objective does about tokens of older weights, as the run's schedule says.


def corrected(objective: Objective, correction: ScheduleCorrection) -> Objective:
    """An objective that weighs old tokens as the schedule says; one that does so already stays as it is."""
    knobs = correction.knobs()
    if not knobs or "sampled" in objective.needs:
        return objective
    if correction.decoupled and isinstance(objective, Clipped):
        return Decoupled(objective.clip_low, objective.clip_high, objective.dual, **knobs)
    weight = ImportanceWeight(**knobs)
    if isinstance(objective, Composed):
        made = replace(objective, corrections=(*objective.corrections, weight))
    else:
        made = Composed(objective, (), (weight,))
    accumulator_of(made)  # refuses objectives that take their gradient path by path
    return made


def compute_of(config: TrainConfig) -> Compute:
    """How the run's policies are read."""
    dtype = place(config.device, config.dtype).dtype
    return Compute(dtype if dtype in HALF else None, config.gradient_checkpointing, config.piece)


def make_learner(parts: Parts, model: Any, config: TrainConfig, stages: Sequence[Parts] = ()) -> Learner:
    """Policy, optimizer and the fixed policies the objective asks for, at first or at a later one of its stages."""
    keep_freed()
    stages = stages or [parts]
    # Dropout would make the trained policy another one than the sampled.
    model.eval()
    if config.piece and any(accumulator_of(stage.objective) is not None for stage in stages):
        raise TrainError(f"{parts.name} needs each path's own gradient, which pieces do not keep; leave out piece")
    compute, lora = compute_of(config), config.lora
    _round(model, config)
    needed = {"reference", "previous", "ewma"}.intersection(
        *[frozenset[str]().union(*(s.objective.needs for s in stages))]
    )
    # What the policy was at first is under its adapters, unless the reference moves on with the policy.
    under = lora is not None and not moving(stages)
    if lora is not None and isinstance(model, OwnPolicy):
        raise TrainError(f"adapters are for language models; train a {type(model).__name__} whole, without lora")
    anchors: dict[str, Policy] = {}
    if "reference" in needed and not under and lora is None:
        anchors["reference"] = fixed_copy(model, compute)
    if lora is not None:
        if compute.dtype is not None and config.ranks == 1:
            # Weights that never change need no finer type than they are computed in; FSDP2 wants one type for all.
            narrowed(model, compute.dtype)
        model = with_lora(model, rank=lora.rank, alpha=lora.alpha, targets=lora.targets)
    policy = policy_of(model, compute)
    if "reference" in needed and lora is not None:
        anchors["reference"] = Unadapted(cast(LanguagePolicy, policy)) if under else fixed_copy(model, compute)
    if "previous" in needed:
        # Ratios to it are of the policy's own weights, to the last digit.
        anchors["previous"] = policy_of(deepcopy(model).requires_grad_(False), compute)
    optim = optim_at(config, parts)
    if "ewma" in needed:
        anchors["ewma"] = policy_of(deepcopy(model).requires_grad_(False), compute)
    _check_measured(optim, stages, config)
    return Learner(policy, make_optimizer(policy, optim), optim, anchors)


def _check_measured(optim: Optim, stages: Sequence[Parts], config: TrainConfig) -> None:
    """Refuse what only one rank, or only gradients that are summed, can do."""
    if config.ranks > 1 and optim.gradient_noise:
        raise TrainError(
            f"{stages[0].name} measures gradient_noise, which ranks={config.ranks} cannot: a pass sums gradients of "
            "several prompts; give ranks=1"
        )
    if optim.gradient_noise and any(accumulator_of(stage.objective) is not None for stage in stages):
        raise TrainError(
            f"{stages[0].name} puts its gradient together path by path, so prompts have none of their own to compare; "
            "leave gradient_noise out"
        )


def _round(model: Any, config: TrainConfig) -> None:
    """Let the model compute as coarsely as the engine does."""
    if config.train_precision == "full":
        return
    if isinstance(model, OwnPolicy) or config.lora is not None or config.ranks > 1:
        what = "a policy without tokens" if isinstance(model, OwnPolicy) else "lora" if config.lora else "several ranks"
        raise TrainError(f"train_precision={config.train_precision!r} does not go with {what}; leave one of them out")
    round_forward(model, config.train_precision)


def fixed_copy(model: Any, compute: Compute) -> Policy:
    """A policy that stays as the model is now, in the type that it is computed in."""
    copy: Any = deepcopy(model).requires_grad_(False)
    if compute.dtype is not None and next(copy.parameters()).dtype == torch.float32:
        narrowed(copy, compute.dtype)
    return policy_of(copy, compute)
