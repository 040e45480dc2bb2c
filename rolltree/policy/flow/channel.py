"""The channel of a denoiser: a class label goes in as one token, latents come out, the last of them is the image.

An action is a step: the latent it led to, and behind it the noise it was drawn with (1 = the model's own, 0 = none).
Whoever reads the action again, trainer or engine, so scores it under the distribution it really came from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rolltree.errors import RolltreeError
from rolltree.tree.node import Array, join_actions


class ChannelError(RolltreeError, ValueError):
    """What a channel cannot encode: names it and what the channel knows."""


@dataclass(frozen=True, slots=True)
class LatentChannel:
    """Labels 0 … classes − 1 to prompts of one token, latents of `shape` to images."""

    shape: tuple[int, ...]
    classes: int
    kind: ClassVar[str] = "latents"

    @property
    def size(self) -> int:
        """Numbers in a latent."""
        return int(np.prod(self.shape))

    def encode(self, observation: Any, /) -> Array:
        """A label, as itself or written out; or latents given as actions, to be forced."""
        if isinstance(observation, np.ndarray) and observation.ndim:
            return self._given(observation)
        try:
            label = int(observation) if not isinstance(observation, float | bool) else -1
        except (TypeError, ValueError):
            label = -1
        if not 0 <= label < self.classes:
            raise ChannelError(
                f"{str(observation)[:80]!r} is no label of this model; give a number from 0 to {self.classes - 1}"
            )
        return np.array([label], np.int32)

    def decode(self, actions: Any, /) -> NDArray[np.float32]:
        """The image after the last step, or half-way to it: numbers about −1 … 1."""
        if not len(actions) or np.ndim(actions[-1]) == 0:
            raise ChannelError("nothing was denoised yet, so there is no image")
        return np.asarray(actions[-1], np.float32)[: self.size].reshape(self.shape)

    def split(self, actions: Array) -> tuple[int, NDArray[np.float32]]:
        """The label and the (n, size + 1) latents of a path from its prompt on."""
        prompt = [int(a) for a in actions if np.ndim(a) == 0]
        steps = [np.asarray(a, np.float32) for a in actions[len(prompt) :]]
        if len(prompt) != 1 or not 0 <= prompt[0] < self.classes or any(s.shape != (self.size + 1,) for s in steps):
            raise ChannelError(
                f"a path here is one label and then latents of {self.size + 1} numbers; this one has "
                f"{len(prompt)} tokens and {len(steps)} latents"
            )
        return prompt[0], np.array(steps, np.float32).reshape(len(steps), self.size + 1)

    def _given(self, actions: Array) -> Array:
        if actions.dtype.kind == "f" and actions.shape[1:] == (self.size + 1,):
            return actions.astype(np.float32)
        if actions.dtype.kind in "iu" and actions.ndim == 1:
            return actions.astype(np.int32)
        if actions.dtype.kind == "O":
            label, steps = self.split(actions)
            return join_actions([np.array([label], np.int32), steps])
        raise ChannelError(
            f"actions of {actions.dtype} and shape {actions.shape[1:]} are no latents of this model; give float32 of "
            f"shape ({self.size + 1},): the latent and the noise it was drawn with"
        )
