"""Majority votes: rules for ties and silence, honest bookkeeping, and what training makes of a wrong majority."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np
import pytest

from rolltree.credit.registry import load_credit
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.filter.lengths import Overlong
from rolltree.filter.vote import MajorityVote, VoteError
from rolltree.generate.independent import Independent
from rolltree.generate.judge.measured import tally
from rolltree.generate.runner import grow
from rolltree.task.protocol import Item, Verdict
from rolltree.testing.tiny import SpellTask
from rolltree.tree import Node, Tree
from rolltree.tree.table import table


def group(answers: list[str | None], rewards: list[float] | None = None) -> Tree:
    tree = Tree("t", [1])
    for i, answer in enumerate(answers):
        leaf = tree.extend(0, [5, i], status="done", finish="eos", entropy=np.ones(2, np.float32))
        leaf.scores["reward"] = 0.0 if rewards is None else rewards[i]
        leaf.notes["answer"] = answer
    return tree


def rewards(tree: Tree) -> list[float]:
    return [leaf.scores["reward"] for leaf in tree.leaves() if not leaf.usage]


@pytest.mark.parametrize(
    ("vote", "answers", "labelled"),
    [
        (MajorityVote(), ["a", "b", "b", None], [0, 1, 1, 0]),
        (MajorityVote(), ["b", "a", "a", "b"], [1, 0, 0, 1]),
        (MajorityVote(ties="shared"), ["b", "a", "c", "b", "a"], [1, 1, 0, 1, 1]),
        (MajorityVote(ties="drop"), ["b", "a"], []),
        (MajorityVote(silent="vote"), ["a", None, None], [0, 1, 1]),
        (MajorityVote(silent="wrong"), ["a", None, None], [1, 0, 0]),
        (MajorityVote(silent="drop"), ["a", None, "a", None], [1, 1]),
        (MajorityVote(least=0.6), ["a", "a", "b", "c"], []),
        (MajorityVote(), [None, None], []),
    ],
)
def test_rules(vote: MajorityVote, answers: list[str | None], labelled: list[int]) -> None:
    tree = group(answers)
    vote(tree, 8)
    assert rewards(tree) == labelled
    dropped = [leaf.usage for leaf in tree.leaves() if leaf.usage]
    assert len(dropped) == len(answers) - len(labelled)
    assert all(usage.startswith("dropped: no ") for usage in dropped)


def test_unknown_rules_are_refused_by_name() -> None:
    with pytest.raises(VoteError, match="ties='random' is none of first, shared, drop"):
        MajorityVote(ties="random")  # type: ignore[arg-type]


def test_the_truth_stays_on_record_and_never_leaks_into_the_reward() -> None:
    tree = group(["x", "y", "y"], rewards=[1.0, 0.0, 0.0])
    vote = MajorityVote()
    vote(tree, 4)
    vote(tree, 4)
    Overlong(buffer=0.5, penalty=1.0)(tree, 4)
    assert rewards(tree) == [0, 1, 1]
    assert [leaf.scores["true_reward"] for leaf in tree.leaves()] == [1, 0, 0]
    assert [leaf.scores["outcome"] for leaf in tree.leaves()] == [1, 0, 0]
    assert [leaf.scores["vote"] for leaf in tree.leaves()] == pytest.approx([1 / 3, 2 / 3, 2 / 3])


def forked() -> tuple[Tree, list[Node]]:
    """A wrong stem with three branches, and two right leaves of their own."""
    tree = Tree("t", [1])
    head = tree.extend(0, [2], status="done")
    leaves = [tree.extend(head, [i]) for i in range(3)] + [tree.extend(0, [3, i]) for i in range(2)]
    for i, leaf in enumerate(leaves):
        leaf.status, leaf.scores["reward"] = "done", float(i > 2)
        leaf.notes["answer"] = "wrong" if i < 3 else "right"
    return tree, leaves


def test_branches_of_one_stem_do_not_outvote_independent_leaves_when_forks_share_a_vote() -> None:
    tree, leaves = forked()
    assert tally(tree, leaves, "leaf")["wrong"] == pytest.approx(3 / 5)
    assert tally(tree, leaves, "fork")["wrong"] == pytest.approx(1 / 3)
    MajorityVote(weigh="fork")(tree, 8)
    assert rewards(tree) == [0, 0, 0, 1, 1]


class Bandit(SpellTask):
    """One token, "a" to "c"; "a" is right."""

    def __init__(self) -> None:
        super().__init__(stop=(), max_tokens=1)

    async def verify(self, item: Item, state: object, text: str) -> Verdict:
        return Verdict(float(text == "a"), answer=text)


def trained(vote: MajorityVote | None, start: list[float], steps: int = 25, rate: float = 2.0) -> np.ndarray:
    """Exact softmax policy gradient of the credit's advantages on a three-armed bandit; returns the arms'
    distribution."""
    logits = np.log(np.array(start))
    task = Bandit()

    async def run() -> None:
        engine = TabularEngine(lambda _: list(distribution(logits)), Letters("abcdefghijklmnopqrstuvwxyz"))
        for step in range(steps):
            forest = await grow(Independent(32), engine, task, islice(task.items("train"), 1), seed=step)
            if vote is not None:
                vote(next(iter(forest)), 1)
            view = table(forest)
            advantage = load_credit("grpo")(view)
            assert advantage.leaf is not None
            gradient = np.zeros(3)
            for row, a in zip(view.leaf, advantage.leaf, strict=True):
                gradient += a * (np.eye(3)[int(view.nodes[row].actions[0])] - distribution(logits)[:3]) / 32
            logits[:] += rate * gradient
            await engine.update_weights(lambda _: list(distribution(logits)), step + 1)

    asyncio.run(run())
    return distribution(logits)[:3]


def distribution(logits: np.ndarray) -> np.ndarray:
    p = np.exp(logits - logits.max())
    return np.concatenate([p / p.sum(), np.zeros(23)])


def test_a_wrong_majority_is_made_certain_and_a_right_one_too() -> None:
    """With the truth as reward a policy that is right 25 % of the time learns; with votes it unlearns."""
    assert trained(None, [0.25, 0.6, 0.15])[0] > 0.9
    assert trained(MajorityVote(), [0.25, 0.6, 0.15])[1] > 0.9
    assert trained(MajorityVote(), [0.5, 0.35, 0.15])[0] > 0.9


@pytest.mark.parametrize(("wrong_entropy", "pushed"), [(1.5, "less"), (0.5, "more")])
def test_adv_res_slows_an_uncertain_wrong_majority_and_speeds_up_a_confident_one(
    wrong_entropy: float, pushed: str
) -> None:
    tree = group(["w", "w", "w", "r"])
    for leaf in tree.leaves():
        leaf.entropy = np.full(2, wrong_entropy if leaf.notes["answer"] == "w" else 1.0, np.float32)
    MajorityVote()(tree, 4)
    view = table([tree])
    plain, scaled = load_credit("grpo")(view).leaf, load_credit("entropy_response", base="grpo")(view).leaf
    assert plain is not None
    assert scaled is not None
    assert (scaled[0] < plain[0]) == (pushed == "less")
    assert plain[0] > 0
