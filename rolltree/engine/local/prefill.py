"""Reading the prefixes of newly admitted requests: each different one once, what is cached not at all."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rolltree.engine.local.prefix import PrefixCache
from rolltree.engine.local.run import LocalRun
from rolltree.policy.decoder import Decoder
from rolltree.policy.slab import Slab


@dataclass(frozen=True, slots=True)
class Leader:
    """A prefix to read: how much of it is cached and in which blocks."""

    run: LocalRun
    cached: int
    slots: list[int]

    @property
    def new(self) -> int:
        """Tokens to compute."""
        return len(self.run.ids) - self.cached


@dataclass(frozen=True, slots=True)
class Seating:
    """Rows of a wave: leaders first, then their followers, each with the index of its leader."""

    leaders: list[Leader]
    followers: list[tuple[LocalRun, int]]


def seat(wave: list[LocalRun], cache: PrefixCache) -> Seating:
    """Group a wave by prefix. The last token is always read, because its state gives the first logits."""
    groups: dict[bytes, list[LocalRun]] = {}
    for run in wave:
        groups.setdefault(run.ids.tobytes(), []).append(run)
    found = [(Leader(runs[0], *cache.find(runs[0].ids[:-1])), runs[1:]) for runs in groups.values()]
    found.sort(key=lambda pair: (pair[0].cached > 0, pair[0].new))
    return Seating([lead for lead, _ in found], [(run, i) for i, (_, rest) in enumerate(found) for run in rest])


def read(decoder: Decoder, seating: Seating, cache: PrefixCache, slab: Slab, *, first: int, most: int) -> Tensor:
    """Fill rows `first` … of the slab; return the last hidden state of every row of the wave."""
    leaders, device = seating.leaders, decoder.device
    states = list[Tensor]()
    at = 0
    while at < len(leaders):
        stop = _chunk(leaders, at, most)
        states.append(_read_chunk(decoder, leaders[at:stop], cache, slab, first + at))
        at = stop
    cache.store([(first + i, lead.run.ids) for i, lead in enumerate(leaders)], slab)
    if seating.followers:
        who = torch.tensor([i for _, i in seating.followers], device=device)
        rows = first + len(leaders) + torch.arange(len(who), device=device)
        slab.copy_rows(first + who, rows, max(len(run.ids) for run, _ in seating.followers))
        states.append(torch.cat(states)[who])
    return torch.cat(states)


def _chunk(leaders: list[Leader], at: int, most: int) -> int:
    """Where the chunk that begins at `at` ends: padded size at most `most` tokens, cached and fresh kept apart."""
    stop = at + 1
    while (
        stop < len(leaders)
        and (leaders[stop].cached > 0) == (leaders[at].cached > 0)
        and (stop + 1 - at) * leaders[stop].new <= most
    ):
        stop += 1
    return stop


def _read_chunk(decoder: Decoder, leaders: list[Leader], cache: PrefixCache, slab: Slab, first: int) -> Tensor:
    width = max(lead.new for lead in leaders)
    ids = torch.zeros(len(leaders), width, dtype=torch.long)
    for i, lead in enumerate(leaders):
        ids[i, : lead.new] = torch.from_numpy(lead.run.ids[lead.cached :])
    if leaders[0].cached:
        cache.restore([lead.slots for lead in leaders], slab, first)
    start = torch.tensor([lead.cached for lead in leaders])
    reach = max(len(lead.run.ids) for lead in leaders)
    view = slab.view(first, first + len(leaders))
    hidden = decoder.extend(ids.to(decoder.device), start.to(decoder.device), view, reach)
    last = torch.tensor([lead.new - 1 for lead in leaders], device=decoder.device)
    return hidden[torch.arange(len(leaders), device=decoder.device), last]
