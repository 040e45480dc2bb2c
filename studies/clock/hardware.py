"""How fast things are: a decode step with its memory-bound plateau, prefill, training, and updates of the weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hardware:
    """A stated model of a cluster. Defaults are round numbers for some 7 billion parameters on one device.

    A decode step of n sequences takes max(plateau, per_sequence · n) seconds: up to the knee more sequences are free,
    beyond it they are not. Length of context does not slow a step down.
    """

    engines: int = 8
    slots: int = 256
    """Most sequences on an engine, those that wait for an environment included."""
    plateau: float = 0.020
    per_sequence: float = 0.020 / 64
    prefill: float = 1 / 20_000
    """Seconds per token; an engine that prefills does not decode."""
    prompt: int = 200
    """Tokens of a prompt."""
    train: float = 1 / 5000
    """Seconds of one device per trained token."""
    sync: float = 5.0
    """Seconds of an update of the weights on an engine."""
    hidden: float = 0.0
    """Share of an update that is transferred in the background, while engines decode with the weights they have."""
    verifiers: int = 0
    """Devices that verify, one rollout each at a time; 0 = as many as are asked for, elsewhere."""
    waves: int = 8
    """Engines that reload one after the other do so in this many waves."""
    colocated: bool = True
    """Whether the engines' devices also train. Otherwise the trainer has devices of its own beside them."""
    trainer_share: float = 0.25
    """Share of all devices that the trainer then has."""

    def step(self, n: int) -> float:
        """Seconds of a decode step."""
        return max(self.plateau, self.per_sequence * n)

    @property
    def peak(self) -> float:
        """Most tokens an engine decodes per second."""
        return max(n / self.step(n) for n in range(1, self.slots + 1))

    @property
    def trainer(self) -> float:
        """Devices that train."""
        return self.engines if self.colocated else self.engines * self.trainer_share / (1 - self.trainer_share)

    @property
    def devices(self) -> float:
        """All devices."""
        return self.engines if self.colocated else self.engines + self.trainer
