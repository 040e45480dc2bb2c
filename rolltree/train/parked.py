"""What is under way, on disk: the scheduler's state and the trees of all groups that are not settled.

Rollouts that can be cut stand as far as they were grown. Trees that cannot are written when they are finished; others
begin again from the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rolltree.control.schedule import Group
from rolltree.task.protocol import Item
from rolltree.train.flight import Flight
from rolltree.train.ways import Plot
from rolltree.tree import Forest, Tree
from rolltree.tree.parquet import load, save
from rolltree.tree.values import StoreError, dumps, loads

At = Callable[[Sequence[int]], list[Item]]
"""Items by their places in the run's stream."""


def save_flight(flight: Flight, folder: Path) -> None:
    """Write it all between a publication and the next `begin`."""
    scheduler = flight.scheduler
    groups: list[Group] = [*scheduler.unfinished.values(), *scheduler.ready.values()]
    whole = [g for g in groups if flight.way.cuttable or g.number in scheduler.ready]
    plots = {str(g.number): _plot(g.item) for g in groups}
    folder.mkdir(parents=True)
    state = {
        "scheduler": scheduler.state_dict(), "plots": plots, "names": flight.names, "wave": flight.wave,
        "clock": flight.clock(),
    }  # fmt: skip
    (folder / "flight.json").write_text(dumps(state))
    if whole:
        _save_trees({g.number: g.item.tree for g in whole}, folder / "trees")


def load_flight(flight: Flight, folder: Path, at: At) -> None:
    """Go back to what was written; everything goes on with the next `begin`."""
    if not (folder / "flight.json").is_file():
        return
    state: dict[str, Any] = loads((folder / "flight.json").read_text())
    trees = load(folder / "trees") if (folder / "trees").is_dir() else Forest()
    flight.names, flight.wave = list(state["names"]), int(state["wave"])
    flight.began -= float(state["clock"])
    known: dict[str, list[Any]] = state["plots"]
    items = dict(zip(known, at([int(place) for place, *_ in known.values()]), strict=True))
    hands = {wave: flight.hand(wave) for wave in {int(number) // flight.config.prompts for number in known}}

    def plot(number: int) -> Plot:
        place, name, tops, reported = known[str(number)]
        made = flight.plot(int(place), items[str(number)], name, hands[number // flight.config.prompts])
        if str(number) in trees:
            made.tree = trees[str(number)]
            made.tree.id = name
            made.hand = made.hand.on(made.tree)
            made.tops, made.reported = dict(tops), dict(reported)
        return made

    flight.scheduler.load_state_dict(state["scheduler"], plot)


def _plot(plot: Plot) -> list[Any]:
    return [plot.place, plot.tree.id, sorted(plot.tops.items()), sorted(plot.reported.items())]


def _save_trees(trees: dict[int, Tree], folder: Path) -> None:
    """Under the numbers of their groups: names are only unique within a wave."""
    names = {number: tree.id for number, tree in trees.items()}
    try:
        for number, tree in trees.items():
            tree.id = str(number)
        try:
            save(trees.values(), folder)
        except StoreError:
            # States that cannot be written are found again by taking the environment's steps anew.
            save(trees.values(), folder, states="drop")
    finally:
        for number, tree in trees.items():
            tree.id = names[number]
