"""Reading the guesses of a batch in one forward pass, and where accepted ones come to stand."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rolltree.engine.local.speculate.tree import Drafts, Ints
from rolltree.policy.decoder import Decoder, TokenTree
from rolltree.policy.shared import Shared
from rolltree.policy.slab import Slab


def read(
    decoder: Decoder, slab: Slab, last: Ints, at: Ints, drafts: Drafts | None, shared: Shared | None = None
) -> Tensor:
    """Last hidden states (rows, 1 + widest guess, hidden) at the last tokens, in columns `at`, and at the guesses."""
    ids, device = last[:, None], decoder.device
    if drafts is not None:
        ids = np.concatenate([ids, drafts.tokens], 1)
    sent = torch.from_numpy(np.concatenate([ids, at[:, None]], 1)).to(device)
    branches = None if drafts is None or drafts.chains else _branches(drafts, at, slab.capacity, device)
    return decoder.extend(sent[:, :-1], sent[:, -1], slab, slab.capacity, branches, shared)


def settle(slab: Slab, at: Ints, paths: list[list[int]]) -> None:
    """Move keys and values of accepted nodes behind their texts, whose last tokens stand in columns `at`."""
    moves = [
        (row, int(at[row]) + node, int(at[row]) + place)
        for row, path in enumerate(paths)
        for place, node in enumerate(path, 1)
        if node != place
    ]
    if moves:
        rows, source, target = torch.tensor(moves, device=slab.keys[0].device).T
        slab.move_columns(rows, source, target)


def _branches(drafts: Drafts, at: Ints, reach: int, device: torch.device) -> TokenTree:
    """Each node sees its row's text and the nodes that it follows, itself included; its position is its depth."""
    rows, nodes = drafts.depth.shape
    # One column more, where those land for which there is no room; they are padding.
    seen = np.broadcast_to(np.arange(reach + 1) < at[:, None, None], (rows, nodes, reach + 1)).copy()
    columns = np.minimum(at[:, None] + np.arange(nodes), reach)
    np.put_along_axis(seen, np.broadcast_to(columns[:, None], (rows, nodes, nodes)), drafts.ancestors, 2)
    positions = at[:, None] + drafts.depth
    return TokenTree(torch.from_numpy(positions).to(device), torch.from_numpy(seen[:, :, :reach].copy()).to(device))
