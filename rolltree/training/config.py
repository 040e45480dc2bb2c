"""The knobs of a training run that belong to no recipe. Defaults suit a model of a million parameters on two cores."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import inf
from typing import Any

from rolltree.control.schedule import preset
from rolltree.errors import RolltreeError, did_you_mean
from rolltree.knobs.amounts import Tokens
from rolltree.knobs.values import check_instance
from rolltree.knobs.varying import corners, schedules, settled
from rolltree.policy.formats import Precision
from rolltree.rollout.config import RolloutConfig

SCHEDULES = ("constant", "linear", "cosine")


MOST = {"prompts": 100_000, "eval_items": 1_000_000, "eval_samples": 100_000}
"""Counts above which the plan of a step, or of an evaluation, is itself too much."""


class TrainError(RolltreeError):
    """A run cannot start or go on: names the thing, the value and the way out."""


@dataclass(frozen=True, slots=True)
class LoraKnobs:
    """Low-rank adapters (Hu et al. 2021, arXiv 2106.09685) through peft."""

    rank: int = 8
    alpha: float = 16.0
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Optim:
    """AdamW and what keeps it in bounds. A recipe may override single fields.

    `lr`, `clip_norm`, `epochs`, `minibatches` and `minibatch_prompts` may vary over the run, as in
    `lr="5e-4->0 over 200"` (`rolltree.knobs.varying`).
    """

    lr: float = 5e-4
    """For a million parameters; models of a hundred million and more want 1e-6 to 1e-5."""
    warmup: int = 5
    """Updates over which the learning rate rises linearly to `lr`."""
    lr_schedule: str = "constant"
    """How the learning rate goes on behind the warm-up: constant, or falling as a line (linear) or half a cosine
    (cosine) to `lr_floor` of it."""
    lr_floor: float = 0.0
    """Share of `lr` at which it ends."""
    lr_updates: int | None = None
    """Updates until it has fallen; all of the run's steps make when left out."""
    betas: tuple[float, float] = (0.9, 0.99)
    """How much of the running means of the gradient and of its square each update keeps."""
    eps: float = 1e-8
    """Added to the root of the running mean square, so that no step is divided by zero."""
    weight_decay: float = 0.0
    """How strongly weights are pulled towards zero at each update; matrices only."""
    clip_norm: float = 1.0
    """Largest gradient norm applied; longer gradients are scaled down to it."""
    epochs: int = 1
    """Passes over the rollouts of a step."""
    minibatches: int = 1
    """Updates per pass. With one update in all, the proximal policy is the current one and costs no extra forward."""
    minibatch_prompts: int | None = None
    """Prompts of an update: a step of more prompts then makes more updates, instead of as many larger ones."""
    proximal_decay: float = 0.9
    """What each update keeps of the averaged weights, where an objective takes those for its proximal policy."""
    gradient_noise: bool = False
    """Measure how the gradients of single prompts differ (`optim/noise_scale`). Each prompt is then a micro-batch of
    its own, and one more copy of the gradient is kept."""


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One run. Sampling knobs left at None are the task's own."""

    steps: int = 100
    """Training steps; fewer where --decoded or --seconds ends the run before."""
    seed: int = 0
    """Where chance starts: the same seed gives the same run."""
    prompts: int = 16
    """Items per step; a recipe's strategy decides how many leaves each gets."""
    items: int | None = None
    """Train on the first so many distinct items, again and again in other orders; on all there are when left out."""
    optim: Optim = field(default_factory=Optim, metadata={"heading": "The optimizer"})
    temperature: float = 1.0
    """Of sampling during training."""
    max_tokens: Tokens | None = None
    token_budget: Tokens = 2048
    """Most tokens in one micro-batch; their gradients are summed. Small ones stay in a processor's cache (up to a fifth
    faster than 8,192); raise it on a GPU."""
    held: int = 4
    """Most micro-batches whose forward passes are held at once, by objectives with a statistic of the whole update; a
    larger update is read twice instead."""
    ranks: int = 1
    """Processes that share each step's micro-batches, gradients and optimizer state (FSDP2), on processors, or a GPU
    each. A run may be resumed with another number."""
    device: str = "auto"
    """Where policy and local engine compute: auto (a GPU where there is one), cpu, cuda or cuda:N."""
    dtype: str = "auto"
    """In which type they compute: auto (bfloat16 on a GPU that has it, float32 elsewhere), float32 or bfloat16. The
    trained weights are float32 in any case."""
    speculate: str = "off"
    """Guess tokens ahead and keep those that would have been drawn: off, ngram, suffix, adjacent, heads or a smaller
    model with the same tokens; behind a colon the shape: suffix:6, nano:3x2x1, heads:2+3x4, adjacent:spine, or auto.
    The samples stay the same, up to rounding (docs/howto/speculate.md)."""
    engine_precision: Precision = "full"
    """Round the local engine's weights as a serving engine would: bf16, int8, int4, fp8 or fp8-block. It then samples
    another policy than the one in training, unless train_precision is the same."""
    train_precision: Precision = "full"
    """Compute with weights rounded like this in training; gradients go to fine weights. The same on both sides leaves
    no mismatch between engine and trainer."""
    gradient_checkpointing: bool = False
    """Compute each layer's activations again in the backward pass instead of keeping them: less memory, a third more
    work."""
    piece: Tokens = 0
    """Most tokens of a micro-batch computed at once, depth first; keys and values of what stands above are kept. A tree
    beyond `token_budget` is then one micro-batch instead of several that each read its trunk. 0 = at once."""
    staleness: int = 0
    """Versions a batch waits before it is trained, in lock-step: rollouts run ahead of the weights by so many steps, as
    they do in asynchronous training. 0 = every batch is trained at once."""
    scheduler: str = ""
    """How rollouts and training overlap, as in a published system: areal, april, verl, slime, rollart or dart
    (docs/howto/async.md), or not: sync, one batch after the other. "" = the recipe's own, for most of them sync."""
    decoded: Tokens | None = None
    """Stop after the step in which this many tokens have been sampled in all (96000, 96k)."""
    seconds: float | None = None
    """Stop after the step in which this much time has passed, earlier parts of a resumed run included."""
    eval_every: int = 10
    """Steps between evaluations on held-out items (also before the first and after the last step); 0 = never."""
    eval_items: int = 64
    """Held-out items of each evaluation."""
    eval_samples: int = 8
    """Samples per held-out item; pass@k is reported for k = 1 and for this many."""
    end_items: int | None = None
    """Held-out items of the first and the last evaluation; as many as of the others when left out."""
    checkpoint_every: int = 20
    """Steps between checkpoints (also after the last); 0 = only after the last."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints are kept."""
    forests_every: int = 10
    """Steps between saved forests (the first step's is saved too); 0 = none."""
    log_entropy: bool = True
    """Whether the entropy of the policy is computed and logged."""
    mismatch_limit: float = 0.1
    """A difference in log-prob between engine and trainer above this counts as a mismatch."""
    mismatch_share: float = 0.5
    """The run ends where a larger share of actions than this mismatches: its engine writes another policy than the one
    in training, through another temperature, tokenizer or model. 1 = go on whatever is found."""
    loss_limit: float = 1e4
    """A loss of larger magnitude, or a loss or gradient that is not a number, stops the run."""
    lora: LoraKnobs | None = None
    trackers: tuple[str, ...] = ()
    """Any of tensorboard, wandb, trackio."""

    @property
    def rollouts(self) -> RolloutConfig:
        """The knobs that collecting rollouts needs."""
        return RolloutConfig(self.prompts, self.seed, self.temperature, self.max_tokens)

    def __post_init__(self) -> None:
        check_instance("", self)
        counts = ("steps", "prompts", "token_budget", "held", "ranks", "eval_items", "eval_samples", "keep_checkpoints")
        for name in counts:
            if getattr(self, name) < 1:
                raise TrainError(f"{name}={getattr(self, name)} makes no sense; give a whole number of at least 1")
        for name in [name for name, most in MOST.items() if getattr(self, name) > most]:
            raise TrainError(f"{name}={getattr(self, name)} fits no memory; give at most {MOST[name]}")
        ways = {
            **dict.fromkeys(("eval_every", "checkpoint_every", "forests_every"), "(never) or a number of steps"),
            "staleness": "or the number of versions to wait", "piece": "(at once) or a number of tokens",
        }  # fmt: skip
        for name, way in ways.items():
            if getattr(self, name) < 0:
                raise TrainError(f"{name}={getattr(self, name)} makes no sense; give 0 {way}")
        if self.scheduler:
            preset(self.scheduler)  # an unknown name is refused here
        for name in ("items", "max_tokens", "decoded", "seconds", "end_items"):
            if (limit := getattr(self, name)) is not None and not limit > 0:
                raise TrainError(f"{name}={limit} makes no sense; give a number above 0, or None for no limit")
        check_varying(self.optim)
        for name in ("mismatch_limit", "loss_limit"):
            if not getattr(self, name) > 0:
                raise TrainError(f"{name}={getattr(self, name)} lets nothing pass; give a number above 0")
        if not 0 <= self.mismatch_share <= 1:
            raise TrainError(
                f"mismatch_share={self.mismatch_share} is no share; give a number from 0 to 1 (1 = go on anyhow)"
            )
        if not 0 < self.temperature < inf:
            raise TrainError(f"temperature={self.temperature} cannot explore; give a finite number above 0")


def check_varying(optim: Optim) -> None:
    """Refuse optimizer knobs that make no sense at some step of the run."""
    texts = schedules(optim)
    if "lr" in texts and optim.lr_schedule != "constant":
        raise TrainError(
            f"optim.lr={texts['lr']!r} varies by itself, and optim.lr_schedule={optim.lr_schedule!r} would multiply "
            "it; give one of them"
        )
    for step, told in corners(texts):
        check_optim(settled(optim, step, told), rests="lr" in texts)


def check_optim(optim: Optim, *, rests: bool = False) -> None:
    """Refuse optimizer knobs that make no sense. A learning rate of 0 does where a schedule `rests` there."""
    for name in ("lr", "clip_norm"):
        if not (getattr(optim, name) > 0 or (rests and name == "lr" and optim.lr == 0)):
            raise TrainError(f"optim.{name}={getattr(optim, name)} makes no sense; give a number above 0")
    if optim.lr == inf:
        raise TrainError("optim.lr=inf makes no sense; give a finite number above 0")
    for name in ("eps", "weight_decay", "warmup"):
        if not 0 <= getattr(optim, name) < inf:
            raise TrainError(f"optim.{name}={getattr(optim, name)} makes no sense; give 0 or a number above it")
    if optim.lr_schedule not in SCHEDULES:
        way = did_you_mean(optim.lr_schedule, SCHEDULES) or f"choose {', '.join(SCHEDULES)}"
        raise TrainError(f"there is no optim.lr_schedule {optim.lr_schedule!r}; {way}")
    if not 0 <= optim.lr_floor <= 1:
        raise TrainError(f"optim.lr_floor={optim.lr_floor} makes no sense; give a share of the learning rate, 0 to 1")
    if optim.lr_updates is not None and optim.lr_updates <= optim.warmup:
        raise TrainError(
            f"optim.lr_updates={optim.lr_updates} end before the warm-up's {optim.warmup} do; give more, or a shorter "
            "warmup"
        )
    if not all(0 <= beta < 1 for beta in optim.betas):
        raise TrainError(f"optim.betas={optim.betas} make no sense; give two numbers of at least 0 and below 1")
    for name in ("epochs", "minibatches"):
        if getattr(optim, name) < 1:
            raise TrainError(f"optim.{name}={getattr(optim, name)} makes no sense; give a whole number of at least 1")
    _check_updates(optim)


def _check_updates(optim: Optim) -> None:
    if optim.minibatch_prompts is not None:
        if optim.minibatch_prompts < 1:
            raise TrainError(f"optim.minibatch_prompts={optim.minibatch_prompts} makes no sense; give 1 prompt or more")
        if optim.minibatches != 1:
            raise TrainError(
                f"optim.minibatch_prompts={optim.minibatch_prompts} and optim.minibatches={optim.minibatches} both say "
                "how large an update is; give one of them"
            )
    if not 0 <= optim.proximal_decay < 1:
        raise TrainError(f"optim.proximal_decay={optim.proximal_decay} makes no sense; give a share from 0 to below 1")


def known_fields(cls: type[Any]) -> tuple[str, ...]:
    """Names of a dataclass's knobs."""
    return tuple(f.name for f in fields(cls) if f.init)
