"""A Hugging Face causal LM as a trained policy: log-probs of packed trees through the model's own forward.

The attention function is exchanged through transformers' attention interface: a forward that carries a plan attends
along the tree, one that does not runs scaled dot-product attention as before, so the same module still generates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from rolltree.errors import ModelError
from rolltree.policy.attention import Attend, Kernel, along
from rolltree.policy.device import HALF, Compute
from rolltree.policy.flex import LEAST
from rolltree.policy.forward import checkpoint_layers, through
from rolltree.policy.llama_train import covers, hidden_states
from rolltree.policy.packed import Packed, Spans
from rolltree.policy.pieces import hidden_in_pieces
from rolltree.policy.protocol import PolicyRead
from rolltree.policy.publish import AdaptedWeights, merged_weights
from rolltree.policy.size import exact_context

NAME = "rolltree"
"""Name of the attention function in transformers' registry."""
LOGITS = 1 << 25
"""Most logits held at once; larger vocabularies are read in chunks whose logits are computed again backwards."""
LOGITS_ON_CARD = 1 << 27
"""The same on an accelerator, where products of few rows are slow."""

Attention = Literal["auto", "blocks", "dense", "flex"]


class LanguagePolicy:
    """Reads packed trees with a causal LM. `attention`: "auto" is "flex" (compiled) on CUDA, "blocks" elsewhere and for
    heads that are too narrow for it."""

    def __init__(
        self, model: PreTrainedModel, *, attention: Attention = "auto", compute: Compute | None = None
    ) -> None:
        if attention not in get_args(Attention):
            raise ModelError(f"no attention {attention!r}: choose {', '.join(get_args(Attention))}")
        self.model = model
        self.compute = compute or Compute()
        self.device = next(model.parameters()).device
        _check(core_of(model).config)
        self.attention: Attention = suited(attention, self.device, core_of(model).config)
        self.max_context = exact_context(core_of(model).config)
        """Longest path that is read exactly."""
        if self.attention != "dense":
            core_of(model).set_attn_implementation(NAME)
            if not covers(core_of(model)):
                self._cope()

    def parameters(self) -> Iterator[nn.Parameter]:
        """What is trained."""
        return (p for p in self.model.parameters() if p.requires_grad)

    def read(self, packed: Packed, *, entropy: bool = False, logits: bool = False, watch: bool = False) -> PolicyRead:
        """Log-probs (and entropies, logits) of the targets; gradients flow unless the caller turned them off.

        `watch` adds entropies for the log, which cost no backward pass.
        """
        deepest = int(packed.position.max(initial=0)) + 1
        if deepest > self.max_context:
            raise ModelError(
                f"a path of {deepest} tokens does not fit the model's context of {self.max_context}; "
                "grow shorter rollouts or train a model with a longer context"
            )

        def told() -> tuple[Tensor | None, ...]:
            hidden = self._hidden(packed)
            read, target = self._to(packed.read), self._to(packed.target_tokens)
            head = _head(self.model)
            if logits or hidden.shape[0] * head.out_features <= most_logits(self.device):
                out = _tell(head(hidden), read, target, entropy=entropy, keep=logits, watch=watch)
            else:
                out = _in_chunks(head, hidden, read, target, entropy=entropy, watch=watch)
            return out.logp, out.entropy, out.logits, out.watched

        with self.compute.context(self.device):
            return PolicyRead(*through(self.model, told))

    def states(self, packed: Packed) -> Tensor:
        """(T, width) the last hidden state before each target: what a value is read off."""
        with self.compute.context(self.device):
            return through(self.model, lambda: self._hidden(packed)[self._to(packed.read)])

    @property
    def width(self) -> int:
        """Numbers in a state."""
        return int(core_of(self.model).config.hidden_size)

    def weights(self) -> Mapping[str, Tensor]:
        """The state dict of the causal LM itself, with adapters merged into copies of what they adapt."""
        core = core_of(self.model)
        return merged_weights(core) if core is self.model else AdaptedWeights(self.model)

    def state_dict(self) -> dict[str, Tensor]:
        """Its weights."""
        return self.model.state_dict()

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take weights."""
        self.model.load_state_dict(state)

    def _hidden(self, packed: Packed) -> Tensor:
        core, compute = core_of(self.model), self.compute
        if self.attention in ("blocks", "flex") and covers(core):
            kernel: Kernel = self.attention
            if 0 < compute.piece < len(packed):
                return hidden_in_pieces(core, packed, kernel, self.device, compute)
            attend = along(packed.spans, kernel, self.device, keep=not compute.checkpointing)
            tokens, position, reads = (self._to(a) for a in (packed.tokens, packed.position, packed.reads))
            return hidden_states(core, tokens, position, attend, reads, checkpointing=compute.checkpointing)
        extra: dict[str, Any] = {}
        # A mask of four dimensions is passed through untouched, so no square of booleans is made and thrown away.
        mask = torch.zeros(1, 1, 1, 1, device=self.device)
        if self.attention in ("blocks", "flex"):
            extra["rolltree_plan"] = along(packed.spans, self.attention, self.device, keep=not compute.checkpointing)
        else:
            at, last = torch.arange(len(packed), device=self.device), self._to(packed.spans.last())
            mask = ((at <= at[:, None]) & (at[:, None] < last))[None, None]
        out = _trunk(self.model)(
            input_ids=self._to(packed.tokens)[None], position_ids=self._to(packed.position)[None],
            attention_mask=mask, use_cache=False, **extra,
        )  # fmt: skip
        return out.last_hidden_state[0].index_select(0, self._to(packed.reads))

    def _cope(self) -> None:
        """Ready a model whose layers are not known here for what is asked, or refuse it."""
        core: Any = core_of(self.model)
        self._try_out()
        if self.compute.piece:
            raise ModelError(
                f"a {core.config.model_type} model cannot be computed in pieces, which takes a model of the Llama "
                "family; leave out piece"
            )
        if self.compute.checkpointing:
            checkpoint_layers(core)
            if not self._agrees(core):
                raise ModelError(
                    f"a {core.config.model_type} model computes something else under gradient checkpointing (dropout "
                    "in its layers does that); leave it out"
                )

    def _try_out(self) -> None:
        """Refuse a model whose forward does not attend along the tree it is given, before its numbers train it."""
        core: Any = core_of(self.model)
        learning = [module for module in core.modules() if module.training]
        core.eval()
        why: Exception | None = None
        try:
            agrees = self._agrees(core)
        except Exception as error:  # whatever a forward raises that was not made for this
            agrees, why = False, error
        finally:
            for module in learning:
                module.training = True
        if not agrees:
            raise ModelError(
                f"cannot train a {core.config.model_type} model: its forward does not attend along a tree"
                f"{f' ({type(why).__name__}: {why})' if why else ''}; choose another model"
            ) from why

    @torch.no_grad()
    def _agrees(self, core: Any) -> bool:
        """Whether a trunk with two branches reads as the model's plain forward reads either path.

        A small error proves nothing where small weights make every reading alike, so it must also be small beside what
        reading the second branch as if it followed the first would change.
        """
        token, every = (np.arange(10) * 7 + 2) % _head(self.model).out_features, np.arange(10)
        spans = Spans(np.array([4, 3, 3]), np.array([10, 3, 3]))
        tree = Packed(token, np.array([0, 1, 2, 3, 4, 5, 6, 4, 5, 6]), spans, every, every, token, every)

        def plain(path: Sequence[int]) -> Tensor:
            return core(input_ids=self._to(token[list(path)])[None], use_cache=False).logits[0].log_softmax(-1)

        mine = _head(self.model)(self._hidden(tree)).log_softmax(-1)
        first, second = [0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 7, 8, 9]
        branch = plain(second)
        told_apart = (plain(range(10))[7:] - branch[4:]).abs().max()
        near = 1e-3 if mine.dtype in (torch.float32, torch.float64) else 0.1
        return all(
            torch.allclose(mine[path], read, rtol=near, atol=near)
            and bool((mine[path] - read).abs().max() < told_apart / 2)
            for path, read in ((first, plain(first)), (second, branch))
        )

    def _to(self, array: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(array).to(self.device)


def most_logits(device: torch.device) -> int:
    """Most logits held at once on a device."""
    return LOGITS if device.type == "cpu" else LOGITS_ON_CARD


def _tell(logits: Tensor, read: Tensor, target: Tensor, *, entropy: bool, keep: bool, watch: bool) -> PolicyRead:
    logits = logits.float() if logits.dtype in HALF else logits
    logp = logits.log_softmax(-1)
    taken = logp[read, target]
    spread = -(logp.exp() * logp).sum(-1)[read] if entropy else None
    watched = spread.detach() if watch and spread is not None else None
    if watch and watched is None:
        quiet = logp.detach()
        watched = -torch.einsum("uv,uv->u", quiet.exp(), quiet)[read]
    return PolicyRead(taken, spread, logits[read] if keep else None, watched)


def _in_chunks(
    head: nn.Linear, hidden: Tensor, read: Tensor, target: Tensor, *, entropy: bool, watch: bool
) -> PolicyRead:
    """The same without holding all logits: each chunk's are computed again in the backward pass."""
    size = max(1, most_logits(hidden.device) // head.out_features)
    columns = hidden.new_zeros(len(read), 3, dtype=torch.float32 if hidden.dtype in HALF else hidden.dtype)

    def part(chunk: Tensor, rows: Tensor, goal: Tensor) -> Tensor:
        told = _tell(head(chunk), rows, goal, entropy=entropy, keep=False, watch=watch)
        zero = torch.zeros_like(told.logp)
        return torch.stack(
            [told.logp, zero if told.entropy is None else told.entropy, zero if told.watched is None else told.watched],
            1,
        )

    for start in range(0, len(hidden), size):
        here = torch.nonzero((read >= start) & (read < start + size)).squeeze(1)
        chunk = hidden[start : start + size]
        told = cast(Tensor, checkpoint(part, chunk, read[here] - start, target[here], use_reentrant=False))
        columns = columns.index_copy(0, here, told)
    logp, spread, watched = columns.unbind(1)
    return PolicyRead(logp, spread if entropy else None, None, watched.detach() if watch else None)


def core_of(model: PreTrainedModel) -> PreTrainedModel:
    """The causal LM itself, without an adapter's wrapping."""
    inner: Any = model
    return inner.get_base_model() if hasattr(inner, "get_base_model") else model


def _trunk(model: PreTrainedModel) -> Any:
    core: Any = core_of(model)
    return getattr(core, core.base_model_prefix)


def _head(model: PreTrainedModel) -> nn.Linear:
    return cast(nn.Linear, core_of(model).get_output_embeddings())


def suited(asked: Attention, device: torch.device, config: Any) -> Attention:
    """What is asked for, or what suits the device; FlexAttention's kernel for cards wants heads of some width."""
    if device.type != "cuda":
        return "blocks" if asked == "auto" else asked
    width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    if asked == "flex" and width < LEAST:
        raise ModelError(
            f"attention 'flex' takes heads of {LEAST} numbers or more, and this {config.model_type} model's have "
            f"{width}; leave it to auto, which is 'blocks' here"
        )
    return ("flex" if width >= LEAST else "blocks") if asked == "auto" else asked


def _check(config: Any) -> None:
    """Refuse models whose logits or attention are more than what is computed here."""
    odd = [
        name for name in ("final_logit_softcapping", "attn_logit_softcapping", "logits_scaling", "logit_scale")
        if getattr(config, name, None) not in (None, 1, 1.0)
    ]  # fmt: skip
    kinds = set(getattr(config, "layer_types", None) or ()) - {"full_attention"}
    if kinds or odd:
        what = f"layers of kind {', '.join(sorted(kinds))}" if kinds else f"a {odd[0]} of {getattr(config, odd[0])}"
        raise ModelError(f"cannot train a {config.model_type} model with {what}; choose one with plain full attention")


def _attend(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **kwargs: Any
) -> tuple[Tensor, None]:
    plan = kwargs.pop("rolltree_plan", None)
    if plan is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    scale = float(kwargs.get("scaling") or query.shape[-1] ** -0.5)
    return cast(Attend, plan)(query[0], key[0], value[0], scale)[None].transpose(1, 2), None


AttentionInterface.register(NAME, _attend)
AttentionMaskInterface.register(NAME, sdpa_mask)
