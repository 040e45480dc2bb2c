"""What `poly_ppo` promises beside what all of its kind do."""

from __future__ import annotations

import asyncio

from rolltree.generate.runner import grow
from rolltree.task.registry import load_task
from rolltree_papers.poly_ppo import Vines
from tests.task.foreign.test_text_gym import Guess
from tests.task.foreign.worlds import scripted


def test_a_tree_forks_in_mid_episode_and_every_branch_has_an_environment_of_its_own():
    task = load_task("gym:Guess-v0")
    item = next(task.items("train"))
    env = Guess()
    env.reset(seed=item.answer)
    said = {item.prompt.strip(): "abc", "no": env.word}
    forest = asyncio.run(grow(Vines(), scripted(lambda seen: said[seen[-1]]), task, [item]))
    leaves = [leaf for _, leaf in forest.leaves()]
    assert len(leaves) > 2
    assert {(leaf.status, leaf.scores["reward"]) for leaf in leaves} == {("done", 1.0)}
