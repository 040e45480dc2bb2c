"""Any other Hugging Face causal LM as a decoder: its own forward, with our slab in the place of its cache.

Slower than the native forward, same behaviour. Nothing is assumed about a model that is not checked on it once: its
logits must be its output embedding applied to its last hidden state (times a constant, or softly capped), and its
forward over slab rows of different lengths must reproduce its plain forward.
"""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import CacheLayerMixin

from rolltree.errors import ModelError
from rolltree.policy.decoder import Decoder, TokenTree
from rolltree.policy.device import HALF, narrowed
from rolltree.policy.llama import LlamaDecoder
from rolltree.policy.llama_weights import spec_of, why_not_native
from rolltree.policy.shared import Shared
from rolltree.policy.size import exact_context, window_of
from rolltree.policy.slab import LayerShape, Slab


class _SlabLayer(CacheLayerMixin):
    """One layer of a slab, looking like a Hugging Face cache layer."""

    is_sliding = False

    def __init__(self, slab: Slab, index: int, rows: Tensor, positions: Tensor, reach: int) -> None:
        super().__init__()
        self.is_initialized = True
        self._at = (slab, index, rows, positions)
        self._reach = reach

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: the slab exists."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write (rows, heads, new, dim) and return what attention may look at."""
        slab, index, rows, positions = self._at
        slab.write(index, key_states.transpose(1, 2), value_states.transpose(1, 2), rows, positions)
        return slab.keys[index][:, :, : self._reach], slab.values[index][:, :, : self._reach]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Length of the keys and where they begin."""
        return self._reach, 0

    def get_seq_length(self) -> int:
        """Cached positions; rows differ, so callers pass position ids instead of relying on it."""
        return 0

    def get_max_length(self) -> int:
        """No maximum."""
        return -1


class ForeignDecoder:
    """Decoder (see `rolltree.policy.decoder`) around a private copy of a Hugging Face model."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype, device: torch.device) -> None:
        config: Any = model.config
        self.name = str(config.model_type)
        _refuse_windows(config, self.name)
        own: Any = copy.deepcopy(model)
        self._model = (narrowed(own.to(device), dtype) if dtype in HALF else own.to(device, dtype)).eval()
        self._body: Any = self._model.base_model
        self._head: Any = self._model.get_output_embeddings()
        if self._head is None:
            raise ModelError(f"A {self.name!r} model has no output embedding; pass a causal language model.")
        if "position_ids" not in inspect.signature(self._body.forward).parameters:
            raise ModelError(f"The forward of {self.name!r} takes no position_ids, so rows cannot differ in length.")
        self.dtype, self.device = dtype, device
        self.vocab_size = int(self._head.weight.shape[0])
        self.max_context = exact_context(config)
        self.shapes, self.hidden_size = self._probe()
        self._scale, self._cap = self._readout(config)
        self._check()

    @property
    def embeddings(self) -> Tensor:
        """The model's own input embedding."""
        return self._model.get_input_embeddings().weight

    @property
    def tables(self) -> tuple[Tensor, ...] | None:
        """Nothing is known of its own forward."""
        return None

    @property
    def shares(self) -> bool:
        """No: its attention is its own."""
        return False

    @torch.inference_mode()
    def extend(
        self, ids: Tensor, start: Tensor, slab: Slab | None, reach: int, branches: TokenTree | None = None,
        shared: Shared | None = None,
    ) -> Tensor:  # fmt: skip
        """See `Decoder.extend`; nothing is shared here."""
        rows, new = ids.shape
        positions = start.unsqueeze(1) + torch.arange(new, device=ids.device)
        places = positions if branches is None else branches.positions
        seen = torch.arange(reach, device=ids.device) <= positions.unsqueeze(-1) if branches is None else branches.seen
        mask = torch.zeros(seen.shape, dtype=self.dtype, device=self.device).masked_fill_(~seen, -math.inf)[:, None]
        cache = None
        if slab is not None:
            row = torch.arange(rows, device=ids.device)
            written = positions.clamp(max=slab.capacity)
            layers = [_SlabLayer(slab, i, row, written, reach) for i in range(len(slab.keys))]
            cache = Cache(layers=list(layers))
        return self._body(
            input_ids=ids,
            position_ids=places.clamp(max=self.max_context - 1),
            attention_mask=mask,
            past_key_values=cache,
            use_cache=cache is not None,
        ).last_hidden_state

    @torch.inference_mode()
    def logits(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states."""
        raw = self._head(hidden) * self._scale
        return torch.tanh(raw / self._cap) * self._cap if self._cap else raw

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy a state dict of the same model, all or nothing."""
        own = self._model.state_dict()
        tied = set[str](getattr(self._model, "all_tied_weights_keys", None) or ())
        for name, tensor in own.items():
            if name not in state and name not in tied:
                raise ModelError(f"The weights lack {name!r}; the model needs all {len(own)} of its tensors.")
            if name in state and state[name].shape != tensor.shape:
                found, wanted = tuple(state[name].shape), tuple(tensor.shape)
                raise ModelError(f"Weight {name!r} has shape {found}, but this model has {wanted}: not the same model.")
        unknown = sorted(state.keys() - own.keys())
        if unknown:
            raise ModelError(f"The weights hold {unknown[0]!r}, which this model does not have.")
        with torch.no_grad():
            for name, tensor in own.items():
                if name in state:
                    tensor.copy_(state[name])

    @torch.inference_mode()
    def _probe(self) -> tuple[tuple[LayerShape, ...], int]:
        ids = torch.zeros(1, 2, dtype=torch.long, device=self.device)
        out = self._body(input_ids=ids, past_key_values=DynamicCache(), use_cache=True)
        layers = out.past_key_values.layers
        if not layers or any(getattr(layer, "keys", None) is None for layer in layers):
            raise ModelError(
                f"{self.name!r} does not cache keys and values per position; the local engine cannot run it."
            )
        shapes = tuple(LayerShape(x.keys.shape[1], x.keys.shape[3], x.values.shape[3]) for x in layers)
        return shapes, int(out.last_hidden_state.shape[-1])

    @torch.inference_mode()
    def _readout(self, config: Any) -> tuple[float, float]:
        """Constant factor and soft cap between the output embedding and the model's logits."""
        ids = _check_ids(self.vocab_size, self.device)
        raw = self._head(self._body(input_ids=ids).last_hidden_state)
        true = self._model(input_ids=ids).logits
        cap = float(getattr(config, "final_logit_softcapping", None) or 0.0)
        if cap and torch.allclose(torch.tanh(raw / cap) * cap, true, rtol=1e-3, atol=1e-4):
            return 1.0, cap
        scale = float((raw * true).sum() / (raw * raw).sum())
        if not torch.allclose(raw * scale, true, rtol=1e-3, atol=1e-4):
            raise ModelError(
                f"The logits of {self.name!r} are not its output embedding applied to its last hidden state."
            )
        return (1.0 if abs(scale - 1) < 1e-5 else scale), 0.0

    @torch.inference_mode()
    def _check(self) -> None:
        """Two rows of different length, read in two pieces, against the plain forward."""
        ids = _check_ids(self.vocab_size, self.device)
        plain = self._body(input_ids=ids).last_hidden_state[0]
        n, reach = ids.shape[1], 8
        slab = Slab.zeros(self.shapes, 2, reach, self.dtype, self.device)
        lengths = torch.tensor([n - 1, n - 3], device=self.device)
        self.extend(ids.expand(2, -1)[:, : n - 1], torch.zeros_like(lengths), slab, n - 1)
        got = self.extend(ids[0, lengths].unsqueeze(1), lengths, slab, reach)[:, 0]
        tolerance = 1e-3 if self.dtype in (torch.float32, torch.float64) else 5e-2
        if not torch.allclose(got, plain[lengths], rtol=tolerance, atol=tolerance):
            raise ModelError(f"The forward of {self.name!r} over cached rows does not reproduce its plain forward.")


def _check_ids(vocab: int, device: torch.device) -> Tensor:
    return (torch.tensor([[3, 1, 4, 1, 5, 9]], device=device) * 7 + 2) % vocab


def _refuse_windows(config: Any, name: str) -> None:
    kinds = set(getattr(config, "layer_types", None) or getattr(config, "attention_layers", None) or ())
    kinds -= {"full_attention", "global"}
    window = window_of(config)
    context = getattr(config, "max_position_embeddings", None) or 0
    if kinds or (window and window < context):
        what = ", ".join(sorted(kinds)) or f"a window of {window}"
        raise ModelError(f"{name!r} has layers that do not attend to the whole prefix ({what}); serve it elsewhere.")


# Chooses the decoder for a Hugging Face model.


def decoder_of(model: PreTrainedModel, dtype: torch.dtype, device: torch.device) -> Decoder:
    """The native decoder where it covers the model's architecture, the model's own forward elsewhere.

    Either holds a copy of the weights: training `model` changes nothing here until its weights are loaded.
    """
    if why_not_native(model.config):
        return ForeignDecoder(model, dtype, device)
    return LlamaDecoder(spec_of(model), model.state_dict(), dtype, device)
