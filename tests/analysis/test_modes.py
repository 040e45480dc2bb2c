"""One prompt over time: shares and success of each step are those of its own rollouts, and modes appear and die."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rolltree.analysis.modes import life, recurring, timeline
from rolltree.analysis.prefix import AnalysisError
from rolltree.cli import main
from rolltree.tree import Forest, Tree
from rolltree.tree.store.parquet import save_step
from rolltree.tree.table import table
from tests.analysis.exact import PROMPT, drawn, leaf, solved


def of_step(name: str, paths: list[tuple[int, ...]]) -> Tree:
    tree = Tree(name, list(PROMPT), item="asked again")
    for path in paths:
        leaf(tree, 0, path, solved(path))
    return tree


def test_shares_are_counted_step_by_step():
    rng = np.random.default_rng(0)
    steps = [1, 1, 4, 9]
    drawn_at = [drawn(rng, n) for n in (12, 12, 30, 5)]
    view = table([of_step(f"t{i}", paths) for i, paths in enumerate(drawn_at)])
    made = timeline(view, range(4), steps)
    assert made.steps == (1, 4, 9)
    assert made.folded == 0
    by_step = [drawn_at[0] + drawn_at[1], drawn_at[2], drawn_at[3]]
    prefixes = [()]
    for mode in made.modes[1:]:
        prefixes.append(prefixes[mode.parent] + tuple(mode.actions.tolist()))
    assert len(set(prefixes)) == len(prefixes) > 20
    for mode, prefix in zip(made.modes, prefixes, strict=True):
        for at, paths in enumerate(by_step):
            here = [p for p in paths if p[: len(prefix)] == prefix]
            assert mode.leaves[at] == len(here)
            assert mode.share[at] == pytest.approx(len(here) / len(paths))
            if here:
                assert mode.solved[at] == pytest.approx(np.mean([solved(p) for p in here]))


def test_modes_appear_die_and_return():
    by_step = {"a": [(0, 1), (2, 2), (3, 0)], "b": [(0, 1), (3, 0)], "c": [(1, 1), (0, 1), (2, 2)]}
    view = table([of_step(name, paths) for name, paths in by_step.items()])
    made = timeline(view, range(3), [1, 2, 3])
    lives = {int(mode.actions[0]): life(mode, made.steps) for mode in made.modes[1:]}
    assert lives == {0: "all along", 1: "new at 3", 2: "comes and goes", 3: "gone after 2"}


def test_the_smallest_branches_are_folded_and_counted():
    rng = np.random.default_rng(1)
    view = table([of_step("a", drawn(rng, 60)), of_step("b", drawn(rng, 60))])
    whole, few = timeline(view, range(2), [1, 2]), timeline(view, range(2), [1, 2], most=8)
    assert len(few.modes) == 8
    assert few.folded == len(whole.modes) - 8
    assert min(m.share.max() for m in few.modes) >= sorted(m.share.max() for m in whole.modes)[-8]


def test_prompts_of_one_step_or_of_two_kinds_are_refused():
    one = of_step("a", [(0, 1)])
    other = Tree("b", [9, 9, 9])
    leaf(other, 0, [1], 0.0)
    with pytest.raises(AnalysisError, match="time needs two"):
        timeline(table([one]), [0], [1])
    with pytest.raises(AnalysisError, match="different prompts"):
        timeline(table([one, other]), [0, 1], [1, 2])
    assert recurring([1, 1, 2, 3, 3], [b"x", b"y", b"y", b"x", b"y"]) == [[1, 2, 4], [0, 3]]


def a_run_over_time(folder: Path) -> Path:
    for step, paths in ((1, [(0, 1), (2, 2)]), (2, [(0, 1), (1, 1)])):
        save_step(Forest([of_step("again", paths), Tree(f"once{step}", [step])]), folder / "forests", step)
    (folder / "config.json").write_text("{}")
    return folder


def test_the_command_follows_a_prompt(tmp_path: Path, capsys):
    run = a_run_over_time(tmp_path / "run")
    assert main(["modes", str(run), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["steps"] == [1, 2]
    assert {m["text"]: m["share"] for m in said["modes"][1:]} == {"0 1": [0.5, 0.5], "2 2": [0.5, 0], "1 1": [0, 0.5]}
    assert main(["modes", str(run)]) == 0
    text = capsys.readouterr().out
    assert "gone after 1" in text
    assert "new at 2" in text
    assert main(["modes", str(run), "--list"]) == 0
    assert "once" not in capsys.readouterr().out
    for more in (["--tree", "once1"], ["--tree", "nothing"], ["--top", "0"]):
        assert main(["modes", str(run), *more]) == 2
        assert capsys.readouterr().err.count("\n") == 1
