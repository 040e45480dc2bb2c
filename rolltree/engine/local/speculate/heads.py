"""A head on the policy's last hidden state as drafter, trained from the rollouts while the engine has nothing to do.

After TLT ("Taming the Long-Tail", arXiv 2511.16665): from the state before a token and the token itself the head
predicts the state after it; the policy's own output layer, shared and frozen, turns that into logits. The loss is half
a smooth L1 to the true state, half the cross-entropy to the policy's distribution. States come for free from decoding.
Training may be broken off after any step. The paper's head is a whole decoder layer, trained at 1e-6 from a warm start;
here it is a gated residual without attention, from scratch, hence the larger step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from rolltree.engine.local.speculate.drafter import DraftAsk, Drafter, Seen
from rolltree.engine.local.speculate.near import guesses
from rolltree.engine.local.speculate.tree import Guess
from rolltree.policy.decoder import Decoder

_KEPT = 10_000
"""Tokens of the buffer; a step's long texts stay until newer ones fill it, so the head sees the tail's lengths too."""
_EACH = 32
"""Written tokens per training step."""
_WINDOWS, _UNROLL = 64, 4
"""Places of a training step, and how many tokens the head goes on from each by itself."""


class StateHead(nn.Module):
    """State before a token and the token's embedding to the state after it."""

    def __init__(self, hidden: int, embedding: int) -> None:
        super().__init__()
        self.widen = nn.Linear(hidden + embedding, 4 * hidden)
        self.back = nn.Linear(2 * hidden, hidden)

    def forward(self, state: Tensor, token: Tensor) -> Tensor:
        """(…, hidden), (…, embedding) -> (…, hidden)."""
        both = torch.cat((F.rms_norm(state, state.shape[-1:]), F.rms_norm(token, token.shape[-1:])), -1)
        gate, up = self.widen(both).chunk(2, -1)
        return state + self.back(F.silu(gate) * up)


class Heads(Drafter):
    """Guesses by a head; nothing before it has learned something."""

    watches = computes = True

    def __init__(self, decoder: Decoder, rate: float = 1e-3, seed: int = 0) -> None:
        self._decoder = decoder
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._head = StateHead(decoder.hidden_size, decoder.embeddings.shape[1]).to(decoder.device)
        self._optimizer = torch.optim.AdamW(self._head.parameters(), lr=rate, weight_decay=1e-2)
        self._chance = torch.Generator().manual_seed(seed)
        self._state: dict[int, Tensor] = {}
        """Of each text, the state at the last token that was read."""
        self._open: dict[int, list[tuple[Tensor, list[int]]]] = {}
        self._buffer: deque[tuple[Tensor, Tensor]] = deque()
        """States and tokens of texts that ended."""
        self._held = 0
        self._written = 0
        self.trained = 0
        """Training steps so far."""
        self.loss = float("nan")
        self._paths: dict[tuple[int, tuple[int, ...]], Tensor] = {}

    def ended(self, key: int) -> None:
        """See `Drafter`."""
        self._state.pop(key, None)
        parts = self._open.pop(key, [])
        if sum(len(tokens) for _, tokens in parts) > _UNROLL:
            states = torch.cat([state for state, _ in parts])
            tokens = torch.tensor([token for _, part in parts for token in part])
            self._buffer.append((states, tokens))
            self._held += len(tokens)
            self._written += len(tokens)
            while self._held > _KEPT and len(self._buffer) > 1:
                self._held -= len(self._buffer.popleft()[1])

    def saw(self, seen: Seen) -> None:
        """See `Drafter`."""
        for row, key in enumerate(seen.keys):
            nodes = [0, *seen.paths[row]]
            states = seen.hidden[row, nodes].float()
            tokens = [seen.first[row]]
            if seen.drafts is not None:
                tokens += [int(seen.drafts.tokens[row, node - 1]) for node in nodes[1:]]
            self._state[key] = states[-1]
            self._open.setdefault(key, []).append((states.cpu(), tokens))

    @torch.inference_mode()
    def propose(self, asks: Sequence[DraftAsk]) -> list[list[Guess]]:
        """See `Drafter`."""
        out: list[list[Guess]] = [[] for _ in asks]
        known = [i for i, ask in enumerate(asks) if ask.key in self._state]
        if not self.trained or not known:
            return out
        if not asks[known[0]].path:
            self._paths = {}
        mine = [asks[i] for i in known]
        states = torch.stack([self._state[a.key] if not a.path else self._paths[a.key, a.path[:-1]] for a in mine])
        last = torch.tensor([a.path[-1] if a.path else a.tail[-1] for a in mine], device=states.device)
        after = self._head(states, self._embedded(last))
        for ask, state in zip(mine, after, strict=True):
            self._paths[ask.key, ask.path] = state
        found = guesses(self._decoder.logits(after.to(self._decoder.dtype)), mine)
        for i, answer in zip(known, found, strict=True):
            out[i] = answer
        return out

    def learn(self) -> bool:
        """See `Drafter`. So many steps as tokens were written, whatever the clock says."""
        if not self._buffer or self.trained >= self._written // _EACH:
            return False
        with torch.inference_mode(False), torch.enable_grad():
            self._step()
        self.trained += 1
        return True

    def _step(self) -> None:
        states, tokens = self._windows()
        state, losses = states[:, 0], list[Tensor]()
        for ahead in range(1, _UNROLL + 1):
            state = self._head(state, self._embedded(tokens[:, ahead]))
            true = states[:, ahead]
            with torch.no_grad():
                law = self._decoder.logits(true.to(self._decoder.dtype)).float().softmax(-1)
            logits = self._decoder.logits(state.to(self._decoder.dtype)).float()
            losses.append(0.5 * F.smooth_l1_loss(state, true) + 0.5 * F.cross_entropy(logits, law))
        loss = torch.stack(losses).mean()
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._head.parameters(), 1.0)
        self._optimizer.step()
        self.loss = loss.item()

    def _windows(self) -> tuple[Tensor, Tensor]:
        """Random places of the buffer, each with what follows it: (windows, 1 + unroll, …)."""
        sizes = torch.tensor([len(tokens) - _UNROLL for _, tokens in self._buffer], dtype=torch.float)
        picked = torch.multinomial(sizes, _WINDOWS, replacement=True, generator=self._chance).tolist()
        states, tokens = list[Tensor](), list[Tensor]()
        for i in picked:
            all_states, all_tokens = self._buffer[i]
            at = int(torch.randint(len(all_tokens) - _UNROLL, (1,), generator=self._chance))
            states.append(all_states[at : at + _UNROLL + 1])
            tokens.append(all_tokens[at : at + _UNROLL + 1])
        device = self._decoder.device
        return torch.stack(states).clone().to(device), torch.stack(tokens).clone().to(device)

    def _embedded(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self._decoder.embeddings).float()
