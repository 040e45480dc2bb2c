"""What `hiper` promises beside what all of its kind do."""

from __future__ import annotations

import asyncio
from itertools import islice
from pathlib import Path
from random import Random
from types import SimpleNamespace

import numpy as np
import torch

from rolltree.credit.registry import load_credit
from rolltree.policy.language import LanguagePolicy
from rolltree.task.nano import play
from rolltree.task.registry import load_task
from rolltree.training.config import Optim
from rolltree.training.readings import make_readings
from rolltree.tree import Tree
from rolltree.tree.table import table
from rolltree_papers.hiper import SubgoalTurns
from tests.train.toy import tiny_policy


def test_switch_subgoal_and_action_have_advantages_of_their_own(tmp_path: Path) -> None:
    """HiPER on turns that follow its grammar: three channels, and V_low read where the action begins."""
    task = load_task("spoken:grid", level=1)
    items = list(islice(task.items("train"), 3))
    trees: list[Tree] = []
    codec = tiny_policy().codec
    for item in items:
        tree = Tree(item.id, codec.encode(item.prompt), item=item.id)
        for seed in (0, 1):
            played = asyncio.run(play(task, item, Random(seed), 0.5))  # type: ignore[arg-type]
            here = tree.root
            for who, text in played.turns:
                here = tree.extend(here, codec.encode(text), role=who, status="done")
                if who == "policy":
                    here.logp = np.zeros(len(here), np.float32)
            here.finish = "stop"
            here.scores["reward"] = float(seed)
        trees.append(tree)
    strategy = SubgoalTurns()
    for tree in trees:
        for node in tree:
            if node.trainable and len(node):
                strategy._mark(tree, node, SimpleNamespace(task=task, codec=codec))  # type: ignore[arg-type]
    view = table(trees)
    readings = make_readings(load_credit("hiper"), tiny_policy().model, Optim())
    torch.nn.init.normal_(readings.critic.head.weight)  # type: ignore[union-attr]
    readings.write(view, 512, LanguagePolicy(tiny_policy().model))
    assert any(n.scores["value_low"] != n.scores["value_high"] for n in view.nodes if n.trainable and len(n))
    assert all(n.scores["value_term"] == n.scores["value_high"] for n in view.nodes if n.trainable and len(n))
    action = load_credit("hiper", whiten=False)(view).action
    assert action is not None
    for row, node in enumerate(view.nodes):
        if not (node.trainable and len(node)):
            continue
        own = action[view.start[row] : view.start[row] + view.length[row]]
        text, spans = codec.decode(node.actions), node.notes["spans"]
        assert [text[slice(*spans[name])][0] for name in spans] == ["[", "{", "("]
        values = {name: set(own[slice(*spans[name])].tolist()) for name in spans}
        assert all(len(found) == 1 for found in values.values()), "one number for each span, tags included"
        assert len({next(iter(found)) for found in values.values()}) > 1
        assert (values["subgoal"] == {0.0}) == (node.scores["switch"] == 0.0), "a kept subgoal is not credited anew"
