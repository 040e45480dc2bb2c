"""A policy's own model with its adapters switched off: a reference policy that costs no second model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from rolltree.policy.language import LanguagePolicy
from rolltree.policy.packed import Packed
from rolltree.policy.protocol import PolicyRead


class Unadapted(LanguagePolicy):
    """What the policy was before its adapters learned anything."""

    def __init__(self, policy: LanguagePolicy) -> None:
        self.model, self.device = policy.model, policy.device
        self.attention, self.compute, self.max_context = policy.attention, policy.compute, policy.max_context

    def read(self, packed: Packed, *, entropy: bool = False, logits: bool = False, watch: bool = False) -> PolicyRead:
        """See `LanguagePolicy.read`."""
        with self._switched_off():
            return super().read(packed, entropy=entropy, logits=logits, watch=watch)

    def states(self, packed: Packed) -> Tensor:
        """See `LanguagePolicy.states`."""
        with self._switched_off():
            return super().states(packed)

    def state_dict(self) -> dict[str, Tensor]:
        """Nothing: its weights never change and are those of the model that the run began with."""
        return {}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Nothing to take."""

    def _switched_off(self) -> Any:
        wrapped: Any = self.model
        return wrapped.disable_adapter()
