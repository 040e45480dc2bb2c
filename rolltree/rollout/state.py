"""What is under way, on disk: the scheduler's state, the control's plans, and the trees of groups that are not settled.

Rollouts that can be cut stand as far as they were grown. Trees that cannot are written when they are finished; others
begin again from the same seeds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rolltree.rollout.config import RolloutError
from rolltree.rollout.executor import RolloutExecutor
from rolltree.rollout.slots import PromptGroup
from rolltree.tree import Forest, Tree
from rolltree.tree.store.parquet import load, save
from rolltree.tree.store.values import StoreError, dumps, loads

FILE = "rollouts.json"


def save_state(executor: RolloutExecutor, folder: Path) -> None:
    """Write it all between a publication and the next `begin`."""
    scheduler = executor.scheduler
    groups = [*scheduler.unfinished.values(), *scheduler.ready.values()]
    trees: dict[str, Tree] = {}
    state = {
        "scheduler": scheduler.state_dict(), "groups": {str(g.number): _group(g.item) for g in groups},
        "plans": executor.queue.plans.state(), "waiting": executor.queue.waiting(),
        "discarded": executor.discarded.state(trees), "clock": executor.clock(),
    }  # fmt: skip
    folder.mkdir(parents=True)
    (folder / FILE).write_text(dumps(state))
    for group in groups:
        mine = group.item
        if mine.gathered is not None:
            trees[str(group.number)] = mine.gathered
        trees |= {f"{group.number}+{i}": tree for i, tree in enumerate(mine.discarded)}
        if executor.unit.cuttable:
            trees |= {f"{group.number}.{part}": slot.tree for part, slot in mine.slots.items()}
    if trees:
        _save_trees(trees, folder / "trees")


def load_state(executor: RolloutExecutor, folder: Path, done: int) -> None:
    """Go back to what was written after so many steps; everything goes on with the next `begin`."""
    if not (folder / FILE).is_file():
        if done:
            raise RolloutError(
                f"the checkpoint {folder.parent} says nothing of its rollouts ({folder.name}/{FILE} is missing: it is "
                "of an older version); start a new run from its weights"
            )
        return
    state: dict[str, Any] = loads((folder / FILE).read_text())
    trees = load(folder / "trees") if (folder / "trees").is_dir() else Forest()
    executor.began -= float(state["clock"])
    executor.queue.plans.restore(state["plans"])
    executor.discarded.restore(state["discarded"], lambda key: trees[key])
    known: dict[str, list[Any]] = state["groups"]
    scheduler, numbers = executor.scheduler, [told["number"] for told in state["scheduler"]["groups"]]
    items = {number: _restored(executor, number, known, trees) for number in numbers}
    for action in scheduler.load_state_dict(state["scheduler"], items):
        executor.act(action)
    groups = [*scheduler.unfinished.values(), *scheduler.ready.values()]
    executor.tell(executor.queue.wait_again(state["waiting"], groups))


def _group(group: PromptGroup) -> list[Any]:
    name = "" if group.gathered is None else group.gathered.id
    slots = [
        (part, s.round.name, s.index, s.tree.id, sorted(s.heads.items()), sorted(s.reported.items()))
        for part, s in group.slots.items()
    ]  # fmt: skip
    return [group.plan, group.place, group.for_training, name, [tree.id for tree in group.discarded], slots]


def _restored(executor: RolloutExecutor, number: int, known: dict[str, list[Any]], trees: Forest) -> PromptGroup:
    plan, place, for_training, name, discarded, slots = known[str(number)]
    group, run = PromptGroup(plan, place, for_training), executor.queue.plans.live.get(plan)
    if str(number) in trees:
        group.gathered = _tree(trees, str(number), name)
        if run is not None and for_training:
            run.builder.restored(place, group.gathered)
    group.discarded = [_tree(trees, f"{number}+{i}", old) for i, old in enumerate(discarded)]
    for part, round, index, name, heads, reported in slots:
        assert run is not None, "a plan is over when everything it asked for is delivered, and not before"
        slot = executor.queue.slot(run.rounds[tuple(round)], index)
        if f"{number}.{part}" in trees:
            slot.tree = _tree(trees, f"{number}.{part}", name)
            slot.hand = slot.hand.on(slot.tree)
            slot.heads, slot.reported = dict(heads), dict(reported)
        group.slots[part] = slot
    return group


def _tree(trees: Forest, key: str, name: str) -> Tree:
    tree = trees[key]
    tree.id = name
    return tree


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
