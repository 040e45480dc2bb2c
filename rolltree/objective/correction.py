"""Off-policy correction: what the gap between the sampling distribution and the proximal policy does to the credit.

Three policies, two ratios (decoupled PPO; Hilton et al. 2022, arXiv 2110.00641; AReaL, arXiv 2505.24298, eq. 5): the
surrogate clips r = π/π_old, and w = π_old/π_sampled, a constant, multiplies the credit. Actions without a sampling
probability take w = 1 and no part in any sequence's weight. A correction maps a batch to a batch, so it works under any
surrogate; penalties are not corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, get_args, runtime_checkable

import torch
from torch import Tensor

from rolltree.objective.against import ObjectiveError
from rolltree.objective.batch import Batch, Level, need, need_paths
from rolltree.objective.penalty import kl
from rolltree.objective.ratio import behaviour, path_mean, path_sum, ratio
from rolltree.objective.window import share

Unit = Literal["token", "sequence", "geometric"]
Bounding = Literal["truncate", "clamp", "mask", "none"]
Denominator = Literal["original", "surviving"]
Measure = Literal["ratio", "k1", "k2", "k3"]


class Correction(Protocol):
    """A pure function from a batch to a batch whose credit is corrected."""

    @property
    def level(self) -> Level:
        """`path` when weights belong to whole paths."""
        ...

    @property
    def needs(self) -> frozenset[str]:
        """What the batch must carry."""
        ...

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The corrected batch and metrics."""
        ...


@runtime_checkable
class StepWideCorrection(Protocol):
    """A correction with a number that must be one for the whole optimizer step."""

    def fit(self, batches: Sequence[Batch]) -> Correction:
        """The same correction with that number fixed from all micro-batches."""
        ...


def fit_correction(correction: Correction, batches: Sequence[Batch]) -> Correction:
    """Fix a correction's step-wide numbers, if it has any."""
    return correction.fit(batches) if isinstance(correction, StepWideCorrection) else correction


@dataclass(frozen=True, slots=True)
class ImportanceWeight:
    """Multiply the credit by a bounded w = π_old/π_sampled.

    `unit`: per action, the product along a path, or its geometric mean. `bound`: "truncate" is min(w, high) (TIS),
    "clamp" is [low, high], "mask" drops what lies outside [low, high] (IcePop), "none" leaves w alone. `normalise`
    divides by the batch's weighted mean of w. `denominator="surviving"` rescales so that what a mask leaves has the
    weight of the whole; "original" (the default) lets masked actions count in the average. `factor` fixes what either
    multiplies with.
    """

    unit: Unit = "token"
    bound: Bounding = "truncate"
    low: float = 0.0
    high: float = 2.0
    normalise: bool = False
    denominator: Denominator = "original"
    factor: float | None = None

    def __post_init__(self) -> None:
        _choice("importance weight", "unit", self.unit, get_args(Unit))
        _choice("importance weight", "bound", self.bound, get_args(Bounding))
        _choice("importance weight", "denominator", self.denominator, get_args(Denominator))
        if not 0 <= self.low < self.high:
            raise ObjectiveError(
                f"importance weight: bounds must satisfy 0 ≤ low < high, not {self.low} and {self.high}"
            )

    @property
    def level(self) -> Level:
        """Tokens, or paths for the two sequence units."""
        return "token" if self.unit == "token" else "path"

    @property
    def needs(self) -> frozenset[str]:
        """The sampling distribution."""
        return frozenset({"sampled"})

    @property
    def skips_idle(self) -> bool:
        """Whether nothing is rescaled by a mean over the batch."""
        return not self.normalise and self.denominator == "original"

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The corrected batch; mean and largest raw weight, and the share that a bound touched."""
        raw, mass = _weights(batch, self.unit)
        factor = self._factor([batch]) if self.factor is None else self.factor
        outside = raw > self.high if self.bound == "truncate" else ~self._inside(raw)
        metrics = {
            "is_weight_mean": share(mass, raw),
            "is_weight_max": raw.max() if len(raw) else raw.sum(),
            "is_weight_bounded": share(mass, outside),
        }
        return apply(batch, self._bounded(raw) * factor, self.unit), metrics

    def fit(self, batches: Sequence[Batch]) -> ImportanceWeight:
        """The rescaling factor of the whole step."""
        return replace(self, factor=self._factor(batches))

    def _inside(self, raw: Tensor) -> Tensor:
        return (raw >= self.low) & (raw <= self.high)

    def _bounded(self, raw: Tensor) -> Tensor:
        if self.bound == "truncate":
            return raw.clamp(max=self.high)
        if self.bound == "clamp":
            return raw.clamp(self.low, self.high)
        return torch.where(self._inside(raw), raw, 0) if self.bound == "mask" else raw

    def _factor(self, batches: Sequence[Batch]) -> float:
        parts = [_weights(batch, self.unit) for batch in batches]
        if self.normalise:
            return _over([mass for _, mass in parts], [self._bounded(raw) * mass for raw, mass in parts])
        if self.bound == "mask" and self.denominator == "surviving":
            return _over([mass for _, mass in parts], [self._inside(raw) * mass for raw, mass in parts])
        return 1.0


@dataclass(frozen=True, slots=True)
class Reject:
    """Drop actions or paths whose mismatch lies outside [low, high]; leave the others' credit as it is.

    `measure` is the ratio w itself or a KL estimate of log w: k1 = −log w, k2, k3 with actions drawn from π_sampled.
    On paths it is the product's ("sequence") or the mean over known actions ("geometric").
    """

    unit: Unit = "sequence"
    measure: Measure = "ratio"
    low: float = 0.5
    high: float = 2.0
    denominator: Denominator = "original"
    factor: float | None = None

    def __post_init__(self) -> None:
        _choice("reject", "unit", self.unit, get_args(Unit))
        _choice("reject", "measure", self.measure, get_args(Measure))
        _choice("reject", "denominator", self.denominator, get_args(Denominator))

    @property
    def level(self) -> Level:
        """Tokens, or paths for the two sequence units."""
        return "token" if self.unit == "token" else "path"

    @property
    def needs(self) -> frozenset[str]:
        """The sampling distribution."""
        return frozenset({"sampled"})

    @property
    def skips_idle(self) -> bool:
        """Whether nothing is rescaled by what survives."""
        return self.denominator == "original"

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The batch without what was rejected, and the share rejected."""
        kept, mass = self._kept(batch)
        factor = self._factor([batch]) if self.factor is None else self.factor
        return apply(batch, kept.to(mass.dtype) * factor, self.unit), {"rejected": share(mass, ~kept)}

    def fit(self, batches: Sequence[Batch]) -> Reject:
        """The rescaling factor of the whole step."""
        return replace(self, factor=self._factor(batches))

    def _kept(self, batch: Batch) -> tuple[Tensor, Tensor]:
        log_w = _log_weight(batch)
        if self.measure != "ratio":
            log_w = kl(-log_w, self.measure)
        value, mass = _on_unit(log_w, batch, self.unit)
        value = ratio(value) if self.measure == "ratio" else value
        return (value >= self.low) & (value <= self.high), mass

    def _factor(self, batches: Sequence[Batch]) -> float:
        if self.denominator == "original":
            return 1.0
        parts = [self._kept(batch) for batch in batches]
        return _over([mass for _, mass in parts], [kept * mass for kept, mass in parts])


@dataclass(frozen=True, slots=True)
class SecondMoment:
    """Drop the actions with the largest (log w)² until the mean of the rest is below a threshold (M2PO).

    arXiv 2510.01161: a constraint on the second moment of the log-ratio, which unlike the mean cannot cancel. Dropped
    actions still count in the loss's average, or do not (`denominator="surviving"`), as in AReaL.
    """

    threshold: float = 0.04
    denominator: Denominator = "original"
    cut: tuple[float, float] | None = None
    """Largest (log w)² that stays, and the rescaling factor; None = from the batch at hand."""
    level: Level = "token"

    @property
    def needs(self) -> frozenset[str]:
        """The sampling distribution."""
        return frozenset({"sampled"})

    def __call__(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        """The batch without its largest mismatches, the share dropped and the second moment left."""
        square = _log_weight(batch).square()
        largest, factor = self._cut([batch]) if self.cut is None else self.cut
        kept = square <= largest
        metrics = {"rejected": share(batch.weight, ~kept), "second_moment": share(batch.weight * kept, square)}
        return apply(batch, kept.to(square.dtype) * factor, "token"), metrics

    def fit(self, batches: Sequence[Batch]) -> SecondMoment:
        """The cut of the whole step."""
        return replace(self, cut=self._cut(batches))

    def _cut(self, batches: Sequence[Batch]) -> tuple[float, float]:
        square = torch.cat([_log_weight(batch).square() for batch in batches])
        mass = torch.cat([batch.weight for batch in batches])
        ranked, order = square.sort()
        moment = _divide((ranked * mass[order]).cumsum(0), mass[order].cumsum(0))
        last = torch.ones_like(ranked, dtype=torch.bool)  # equal mismatches stay or go together
        last[:-1] = ranked[1:] > ranked[:-1]
        allowed = ranked[last & (moment <= self.threshold)]
        largest = float(allowed.max()) if len(allowed) else -1.0
        surviving = self.denominator == "surviving"
        return largest, _over([mass], [mass * (square <= largest)]) if surviving else 1.0


def apply(batch: Batch, weights: Tensor, unit: Unit) -> Batch:
    """The batch with non-negative weights, one per action (token) or per leaf (else), multiplied into its credit."""
    paths = batch.paths
    if unit == "token":
        shaped = None if paths is None else replace(paths, advantage=paths.advantage * weights[paths.index])
        return replace(batch, gain=batch.gain * weights, loss=batch.loss * weights, paths=shaped)
    paths = need_paths(batch, "a correction per path")
    return with_entries(batch, paths.advantage * weights[paths.path])


def with_entries(batch: Batch, advantage: Tensor) -> Batch:
    """The batch with another advantage (P,) at every path entry, its two channels summed anew."""
    paths = need_paths(batch, "a correction per path")
    credit = paths.entry_weight * advantage
    gain = torch.zeros_like(batch.gain).index_add(0, paths.index, credit.clamp(min=0))
    loss = torch.zeros_like(batch.loss).index_add(0, paths.index, credit.clamp(max=0))
    return replace(batch, gain=gain, loss=loss, paths=replace(paths, advantage=advantage))


def _log_weight(batch: Batch) -> Tensor:
    base, _ = behaviour(batch.old, need(batch.sampled, "sampled", "an off-policy correction"))
    return (batch.old - base).detach()


def _weights(batch: Batch, unit: Unit) -> tuple[Tensor, Tensor]:
    log_w, mass = _on_unit(_log_weight(batch), batch, unit)
    return ratio(log_w), mass


def _on_unit(values: Tensor, batch: Batch, unit: Unit) -> tuple[Tensor, Tensor]:
    if unit == "token":
        return values, batch.weight
    paths = need_paths(batch, "a correction per path")
    entries = values[paths.index]
    mass = paths.mass
    if unit == "sequence":
        return path_sum(entries, paths), mass
    known = torch.isfinite(need(batch.sampled, "sampled", "an off-policy correction"))[paths.index]
    return path_mean(entries, paths, known), mass


def _over(whole: Sequence[Tensor], rest: Sequence[Tensor]) -> float:
    """Sum of the whole over the sum of the rest; 0 when nothing is left."""
    left = sum(float(part.sum()) for part in rest)
    return sum(float(part.sum()) for part in whole) / left if left else 0.0


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.where(b != 0, a / torch.where(b != 0, b, 1), 0)


def _choice(who: str, knob: str, value: str, among: tuple[str, ...]) -> None:
    if value not in among:
        raise ObjectiveError(f"{who}: {knob}={value!r} must be one of {', '.join(among)}")
