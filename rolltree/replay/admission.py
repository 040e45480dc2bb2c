"""When a new batch may be grown: the rule that bounds how old the oldest action of a trained batch can be."""

from __future__ import annotations


def room(staleness: int, *, version: int, submitted: int) -> int:
    """How many more batches may be grown now (AReaL, arXiv 2505.24298, section 4.1, in batches instead of samples).

    `version` counts updates of the weights, `submitted` the batches grown or being grown so far, trained ones included.
    Batch n may start under version n − staleness at the earliest, and is trained at version n: enforced when a batch
    starts, because nothing done later can make it younger. A batch that was thrown away must not be counted.
    """
    return max(0, staleness + version + 1 - submitted)
