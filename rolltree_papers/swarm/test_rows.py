"""What `swarm` promises beside what all of its kind do."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rolltree.control.order import ControlError
from rolltree.control.schedule import preset
from rolltree.testing.tiny import SpellTask
from rolltree_papers.swarm import Swarm
from tests.rollout.flying import fly


def test_nodes_train_on_what_others_published_judged_here(tmp_path: Path) -> None:
    folder = str(tmp_path / "swarm")
    fly(preset("sync"), task=SpellTask(), control=Swarm(folder, "a"), updates=2)
    lines = [json.loads(line) for line in (tmp_path / "swarm" / "a.swarm.jsonl").read_text().splitlines()]
    assert lines
    assert not {"reward", "rewards", "logp"} & set(lines[0]), "only questions and texts are published"
    other = fly(preset("sync"), task=SpellTask(), control=Swarm(folder, "b", foreign=0.7), updates=1)
    trained = [g.item.tree for g in other.trained[0]]
    foreign = [t for t in trained if t.item.endswith("@a")]
    assert foreign
    for tree in foreign:
        for leaf in tree.leaves():
            said = "".join("abcdefghijklmnopqrstuvwxy!"[i] for i in leaf.actions if i < 26)
            assert leaf.forced
            assert leaf.notes["arm"] == "foreign"
            assert leaf.scores["reward"] == float(said[:1] in "abcdefghijkl"), "the local verifier's word"
            assert leaf.logp is not None
            assert np.isfinite(leaf.logp).all()
            assert leaf.sampling_logprob is not None
            assert np.isnan(leaf.sampling_logprob).all()
    alone = fly(preset("sync"), task=SpellTask(), control=Swarm(str(tmp_path / "empty"), "c"), updates=1)
    assert not [g for g in alone.trained[0] if "@" in g.item.tree.item], "with nobody there all groups are its own"


def test_a_broken_publication_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.swarm.jsonl").write_text("not json\n")
    with pytest.raises(ControlError, match=r"x\.swarm\.jsonl holds a line"):
        Swarm(str(tmp_path), "me")._published()  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ControlError, match="names no file"):
        Swarm(str(tmp_path), "a/b")
