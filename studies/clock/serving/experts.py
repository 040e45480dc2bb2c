"""Which device holds which experts, before and after the number of devices changes."""

from __future__ import annotations

from collections.abc import Mapping

Placement = Mapping[int, int]
"""The device of each expert."""


def round_robin(experts: int, devices: int) -> Placement:
    """Expert k on device k mod n: nearly all move when n changes."""
    return {k: k % devices for k in range(experts)}


def fewest_moves(before: Placement, devices: int) -> Placement:
    """Balanced on the new devices with as few moves as there can be: who stays keeps all it still has room for.

    Devices 0 to n′ − 1 are those after the change; what stood on others must move.
    """
    experts = len(before)
    least, more = divmod(experts, devices)
    counts = [sum(d == device for d in before.values()) for device in range(devices)]
    # Those that have most keep the larger shares.
    larger = set(sorted(range(devices), key=lambda d: (-counts[d], d))[:more])
    room = [least + (device in larger) for device in range(devices)]
    after: dict[int, int] = {}
    for expert, device in before.items():
        if device < devices and room[device] > 0:
            after[expert] = device
            room[device] -= 1
    open_ = [device for device in range(devices) for _ in range(room[device])]
    for expert in before:
        if expert not in after:
            after[expert] = open_.pop(0)
    return after


def moved(before: Placement, after: Placement) -> int:
    """Experts that change their device."""
    return sum(before[expert] != device for expert, device in after.items())


def peak(before: Placement, after: Placement, *, in_place: bool) -> int:
    """Most experts that a device holds at once while they move.

    In place, page by page: one that arrives takes the page that one has left, so at most one is over. Otherwise the
    new set stands beside the old one.
    """
    devices = {*before.values(), *after.values()}
    held = {d: sum(x == d for x in before.values()) for d in devices}
    wanted = {d: sum(x == d for x in after.values()) for d in devices}
    if not in_place:
        return max(held[d] + wanted[d] for d in devices)
    grows = {d for e, d in after.items() if before[e] != d}
    return max(max(held[d], wanted[d]) + (d in grows and held[d] > 0) for d in devices)
