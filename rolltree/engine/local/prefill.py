"""Reading the prefixes of newly admitted requests: each different one once, what is cached not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rolltree.engine.local.common_prefixes import CommonPrefix, CommonPrefixes
from rolltree.engine.local.prefix import BLOCK, PrefixCache
from rolltree.engine.local.run import LocalRun
from rolltree.engine.local.sampling import wide
from rolltree.engine.protocol import Scored
from rolltree.policy.decoder import Decoder
from rolltree.policy.shared import Shared
from rolltree.policy.slab import Slab
from rolltree.tree.node import FloatArray

# Log-probs of given tokens, many requests at a time.


@dataclass(frozen=True, slots=True, eq=False)
class ScoreJob:
    """Score ids[start:]; the result goes to `done`."""

    ids: np.ndarray[tuple[int], np.dtype[np.int64]]
    start: int
    entropy: bool
    hidden: bool
    done: asyncio.Future[Scored]


def take(jobs: list[ScoreJob], most: int) -> list[ScoreJob]:
    """Remove and return the next batch: similar lengths, padded size at most `most` tokens (or one job)."""
    jobs.sort(key=lambda job: len(job.ids))
    count = 1
    while count < len(jobs) and (count + 1) * len(jobs[count].ids) <= most:
        count += 1
    batch = jobs[:count]
    del jobs[:count]
    return batch


@torch.inference_mode()
def score(decoder: Decoder, jobs: list[ScoreJob], version: int, most_logits: int) -> list[Scored]:
    """Score a batch in one forward; logits are made for the scored positions only, a bounded number at a time."""
    width = max(len(job.ids) for job in jobs)
    ids = torch.zeros(len(jobs), width, dtype=torch.long)
    for i, job in enumerate(jobs):
        ids[i, : len(job.ids)] = torch.from_numpy(job.ids)
    ids = ids.to(decoder.device)
    hidden = decoder.extend(ids, torch.zeros(len(jobs), dtype=torch.long, device=decoder.device), None, width)
    rows = np.concatenate([np.full(len(j.ids) - j.start, i) for i, j in enumerate(jobs)])
    columns = np.concatenate([np.arange(j.start, len(j.ids)) for j in jobs])
    row, column = torch.from_numpy(rows).to(decoder.device), torch.from_numpy(columns).to(decoder.device)
    want_entropy = any(j.entropy for j in jobs)
    before, token = hidden[row, column - 1], ids[row, column]
    logp, entropy = _measure(decoder, before, token, most_logits, want_entropy=want_entropy)
    out, at = list[Scored](), 0
    for i, job in enumerate(jobs):
        part = slice(at, at := at + len(job.ids) - job.start)
        last = hidden[i, len(job.ids) - 1].float().cpu().numpy() if job.hidden else None
        kept = entropy[part].copy() if entropy is not None and job.entropy else None
        out.append(Scored(logp[part].copy(), version, kept, last))
    return out


def _measure(
    decoder: Decoder, before: Tensor, token: Tensor, most: int, *, want_entropy: bool
) -> tuple[FloatArray, FloatArray | None]:
    """Log-probs (and entropies) of tokens given the states before them, `most` logits at a time."""
    size = max(1, most // decoder.vocab_size)
    logps, entropies = [torch.empty(0)], [torch.empty(0)]
    for state, chosen in zip(before.split(size), token.split(size), strict=True):
        table = torch.log_softmax(wide(decoder.logits(state)), -1)
        logps.append(table.gather(1, chosen.unsqueeze(1)).squeeze(1).float().cpu())
        if want_entropy:
            entropies.append(torch.special.entr(table.exp()).sum(-1).float().cpu())
    return torch.cat(logps).numpy(), torch.cat(entropies).numpy() if want_entropy else None


@dataclass(frozen=True, slots=True)
class Leader:
    """A prefix to read: the common prefix on which it stands, and how much behind that is cached in which blocks."""

    run: LocalRun
    common: CommonPrefix | None
    paid: int
    """Tokens of its common prefixes that were computed for it."""
    cached: int
    slots: list[int]

    @property
    def base(self) -> int:
        """Where its own columns begin."""
        return 0 if self.common is None else self.common.end

    @property
    def new(self) -> int:
        """Tokens to compute."""
        return len(self.run.ids) - self.base - self.cached

    @property
    def apart(self) -> bool:
        """Whether it sees anything but what is computed now."""
        return bool(self.cached or self.base)


@dataclass(frozen=True, slots=True)
class Seating:
    """Rows of a wave: leaders first, then their followers, each with the index of its leader."""

    leaders: list[Leader]
    followers: list[tuple[LocalRun, int]]

    @property
    def longest(self) -> int:
        """Columns of its own that a row of the wave has."""
        return max((len(lead.run.ids) - lead.base for lead in self.leaders), default=0)


def seat(wave: list[LocalRun], commons: CommonPrefixes, cache: PrefixCache, chunk: int) -> Seating:
    """Group a wave by prefix. The last token is always read, because its state gives the first logits."""
    groups: dict[bytes, list[LocalRun]] = {}
    for run in wave:
        groups.setdefault(run.ids.tobytes(), []).append(run)
    added = zip(*commons.add_wave([(runs[0].ids, len(runs)) for runs in groups.values()], cache, chunk), strict=True)
    found = [
        (_leader(runs[0], common, int(paid), cache), runs[1:])
        for runs, (common, paid) in zip(groups.values(), added, strict=True)
    ]
    found.sort(key=lambda pair: (pair[0].apart, pair[0].new))
    return Seating([lead for lead, _ in found], [(run, i) for i, (_, rest) in enumerate(found) for run in rest])


def _leader(run: LocalRun, common: CommonPrefix | None, paid: int, cache: PrefixCache) -> Leader:
    known, slots = cache.find(run.ids[:-1])
    base = 0 if common is None else common.end
    return Leader(run, common, paid, max(known - base, 0), slots[base // BLOCK :])


def read(
    decoder: Decoder, seating: Seating, cache: PrefixCache, slab: Slab, shared: Callable[[int, int], Shared | None],
    *, first: int, most: int,
) -> Tensor:  # fmt: skip
    """Fill rows `first` … of the slab; return the last hidden state of every row of the wave.

    `shared` tells what rows from one to another share.
    """
    leaders, device = seating.leaders, decoder.device
    states = list[Tensor]()
    at = 0
    while at < len(leaders):
        stop = _chunk(leaders, at, most)
        part = leaders[at:stop]
        states.append(_read_chunk(decoder, part, cache, slab, first + at, shared(first + at, first + stop)))
        at = stop
    cache.store([(first + i, lead.base, lead.run.ids) for i, lead in enumerate(leaders)], slab)
    if seating.followers:
        who = torch.tensor([i for _, i in seating.followers], device=device)
        rows = first + len(leaders) + torch.arange(len(who), device=device)
        slab.copy_rows(first + who, rows, max(len(run.ids) - leaders[i].base for run, i in seating.followers))
        states.append(torch.cat(states)[who])
    return torch.cat(states)


def _chunk(leaders: list[Leader], at: int, most: int) -> int:
    """Where the chunk that begins at `at` ends: padded size at most `most` tokens, those that see only what is computed
    now apart from the others."""
    stop = at + 1
    while (
        stop < len(leaders) and leaders[stop].apart == leaders[at].apart and (stop + 1 - at) * leaders[stop].new <= most
    ):
        stop += 1
    return stop


def _read_chunk(
    decoder: Decoder, leaders: list[Leader], cache: PrefixCache, slab: Slab, first: int, shared: Shared | None
) -> Tensor:
    width = max(lead.new for lead in leaders)
    ids = torch.zeros(len(leaders), width, dtype=torch.long)
    for i, lead in enumerate(leaders):
        ids[i, : lead.new] = torch.from_numpy(lead.run.ids[lead.base + lead.cached :])
    if any(lead.cached for lead in leaders):
        cache.restore([lead.slots for lead in leaders], slab, first)
    start = torch.tensor([lead.cached for lead in leaders])
    reach = max(len(lead.run.ids) - lead.base for lead in leaders)
    view = slab.view(first, first + len(leaders))
    hidden = decoder.extend(ids.to(decoder.device), start.to(decoder.device), view, reach, None, shared)
    last = torch.tensor([lead.new - 1 for lead in leaders], device=decoder.device)
    return hidden[torch.arange(len(leaders), device=decoder.device), last]
