"""A small class-conditional flow model, and its folder: `config.json` and `model.safetensors`."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rolltree.errors import ModelError
from rolltree.latents.denoiser import LatentChannel, sigmas_of
from rolltree.policy.device import Compute

if TYPE_CHECKING:
    from rolltree.latents.engine import LatentEngine
    from rolltree.latents.policy import FlowPolicy

MODEL_TYPE = "rolltree_flow"
_WAVES = 32


@dataclass(frozen=True, slots=True)
class FlowSpec:
    """The sizes of a flow model and how it is sampled."""

    shape: tuple[int, ...] = (8, 8)
    classes: int = 10
    width: int = 256
    blocks: int = 3
    steps: int = 10
    shift: float = 3.0
    eta: float = 0.7
    """Noise of a step per √σ, at noise 1."""


class FlowNet(nn.Module):
    """The velocity of x at noise level σ, given a label: residual blocks of linear layers."""

    def __init__(self, spec: FlowSpec) -> None:
        super().__init__()
        self.spec = spec
        size, width = math.prod(spec.shape), spec.width
        self.enter = nn.Linear(size, width)
        self.label = nn.Embedding(spec.classes, width)
        self.level = nn.Linear(2 * _WAVES, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(spec.blocks))
        self.widen = nn.ModuleList(nn.Linear(width, width) for _ in range(spec.blocks))
        self.about = nn.ModuleList(nn.Linear(width, width) for _ in range(spec.blocks))
        self.narrow = nn.ModuleList(nn.Linear(width, width) for _ in range(spec.blocks))
        self.leave = nn.Linear(width, size)
        waves = torch.exp(torch.linspace(0.0, math.log(1000.0), _WAVES))
        self.register_buffer("waves", waves, persistent=False)

    def hidden(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        """(B, width) before the last layer."""
        waves: Any = self.waves
        angle = sigma[:, None] * waves
        told = nn.functional.silu(self.level(torch.cat([angle.sin(), angle.cos()], -1)) + self.label(label))
        h = self.enter(x)
        for norm, widen, about, narrow in zip(self.norms, self.widen, self.about, self.narrow, strict=True):
            h = h + narrow(nn.functional.silu(widen(norm(h)) + about(told)))
        return h

    def forward(self, x: Tensor, sigma: Tensor, label: Tensor) -> Tensor:
        """(B, size) velocities."""
        return self.leave(self.hidden(x, sigma, label))

    @property
    def sigmas(self) -> list[float]:
        """The noise levels of the sampler."""
        return sigmas_of(self.spec.steps, self.spec.shift)

    @property
    def eta(self) -> float:
        """Noise of a step per √σ, at noise 1."""
        return self.spec.eta

    @property
    def width(self) -> int:
        """Numbers in a state."""
        return self.spec.width

    @property
    def channel(self) -> LatentChannel:
        """Labels in, images out."""
        return LatentChannel(self.spec.shape, self.spec.classes)

    def policy(self, compute: Compute) -> FlowPolicy:
        """See `rolltree.policy.protocol.OwnPolicy`."""
        from rolltree.latents.policy import FlowPolicy

        return FlowPolicy(self, compute)

    def engine(self, version: int) -> LatentEngine:
        """See `rolltree.engine.protocol.OwnEngine`."""
        from rolltree.latents.engine import LatentEngine

        return LatentEngine(self, version)

    def save_pretrained(self, folder: Path | str) -> None:
        """Write a folder that `load_flow` reads."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        told = {"model_type": MODEL_TYPE, **asdict(self.spec)}
        (place / "config.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        save_file({k: v.contiguous() for k, v in self.state_dict().items()}, place / "model.safetensors")


def load_flow(folder: Path) -> FlowNet:
    """The flow model in a folder; one that is not whole is refused."""
    try:
        told: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        told.pop("model_type", None)
        told["shape"] = tuple(told["shape"])
        net = FlowNet(FlowSpec(**told))
        net.load_state_dict(load_file(folder / "model.safetensors"))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        why = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise ModelError(f"The flow model in {folder} cannot be loaded ({why}); get or save it again.") from error
    return net.eval()
