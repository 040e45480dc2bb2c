"""What is under way, on disk: the scheduler's state, the control's plans, and the trees of groups that are not settled.

Rollouts that can be cut stand as far as they were grown. Trees that cannot are written when they are finished; others
begin again from the same seeds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rolltree.control.schedule import Group
from rolltree.train.flight import Flight
from rolltree.train.ways import Bed
from rolltree.tree import Forest, Tree
from rolltree.tree.parquet import load, save
from rolltree.tree.values import StoreError, dumps, loads


def save_flight(flight: Flight, folder: Path) -> None:
    """Write it all between a publication and the next `begin`."""
    scheduler = flight.scheduler
    groups: list[Group] = [*scheduler.unfinished.values(), *scheduler.ready.values()]
    folder.mkdir(parents=True)
    state = {
        "scheduler": scheduler.state_dict(), "beds": {str(g.number): _bed(g.item) for g in groups},
        "waves": flight.sowing.waves.state(), "clock": flight.clock(),
    }  # fmt: skip
    (folder / "flight.json").write_text(dumps(state))
    trees: dict[str, Tree] = {}
    for group in groups:
        bed: Bed = group.item
        if bed.gathered is not None:
            trees[str(group.number)] = bed.gathered
        if flight.way.cuttable:
            trees |= {f"{group.number}.{part}": plot.tree for part, plot in bed.plots.items()}
    if trees:
        _save_trees(trees, folder / "trees")


def load_flight(flight: Flight, folder: Path) -> None:
    """Go back to what was written; everything goes on with the next `begin`."""
    if not (folder / "flight.json").is_file():
        return
    state: dict[str, Any] = loads((folder / "flight.json").read_text())
    trees = load(folder / "trees") if (folder / "trees").is_dir() else Forest()
    flight.began -= float(state["clock"])
    flight.sowing.waves.restore(state["waves"])
    known: dict[str, list[Any]] = state["beds"]
    flight.scheduler.load_state_dict(state["scheduler"], lambda number: _restored(flight, number, known, trees))
    flight.sowing.wait_again()


def _bed(bed: Bed) -> list[Any]:
    name = "" if bed.gathered is None else bed.gathered.id
    plots = [
        (part, p.sheet.name, p.index, p.tree.id, sorted(p.tops.items()), sorted(p.reported.items()))
        for part, p in bed.plots.items()
    ]  # fmt: skip
    return [bed.wave, bed.place, bed.for_training, name, plots]


def _restored(flight: Flight, number: int, known: dict[str, list[Any]], trees: Forest) -> Bed:
    wave, place, teaches, name, plots = known[str(number)]
    bed, live = Bed(wave, place, teaches), flight.sowing.waves.live.get(wave)
    if str(number) in trees:
        bed.gathered = trees[str(number)]
        bed.gathered.id = name
        if live is not None and teaches:
            live.gathering.restored(place, bed.gathered)
    for part, round, index, name, tops, reported in plots:
        assert live is not None, "a plan is over when everything it asked for is delivered, and not before"
        plot = flight.sowing.plot(live.sheets[tuple(round)], index)
        if f"{number}.{part}" in trees:
            plot.tree = trees[f"{number}.{part}"]
            plot.tree.id = name
            plot.hand = plot.hand.on(plot.tree)
            plot.tops, plot.reported = dict(tops), dict(reported)
        bed.plots[part] = plot
    return bed


def _save_trees(trees: dict[str, Tree], folder: Path) -> None:
    """Under the numbers of their groups: names are only unique within a plan."""
    names = {key: tree.id for key, tree in trees.items()}
    try:
        for key, tree in trees.items():
            tree.id = key
        try:
            save(trees.values(), folder)
        except StoreError:
            # States that cannot be written are found again by taking the environment's steps anew.
            save(trees.values(), folder, states="drop")
    finally:
        for key, tree in trees.items():
            tree.id = names[key]
