"""Verdicts that follow length or place, and answers that are given away: found where planted, silent elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from rolltree.cli import main
from rolltree.doctor import CheckedRun, examine, open_run
from rolltree.doctor.finding import Finding
from rolltree.tree import Tree
from rolltree.tree.node import Array
from rolltree.tree.store.parquet import save
from tests.doctor.planted import forest_run, group, mixed

LETTERS = "abcdefghijklmnopqrstuvwxyz 0123456789=?"


def ids(text: str) -> list[int]:
    return [LETTERS.index(c) for c in text]


def decode(runs: Sequence[Array]) -> list[str]:
    return ["".join(LETTERS[int(i)] for i in run) for run in runs]


def judged(seed: int, verdict, trees: int = 30) -> list[Tree]:
    """Groups of eight whose lengths and places are chance; `verdict(place, length, chance)` judges."""
    rng = np.random.default_rng(seed)
    out: list[Tree] = []
    for t in range(trees):
        lengths = rng.integers(3, 30, 8)
        rewards = [float(np.clip(verdict(i, int(n), rng.random()), 0, 0.99)) for i, n in enumerate(lengths)]
        texts = [rng.integers(10, 200, n).tolist() for n in lengths]
        out.append(group(f"t{t}", rewards, texts=texts))
    return out


def found(run: CheckedRun, name: str) -> list[Finding]:
    return list(examine(run, only=[name]).findings)


@pytest.mark.parametrize(("verdict", "names"), [
    (lambda place, length, chance: length / 30 + 0.2 * chance, {"judge_follows_length"}),
    (lambda place, length, chance: 0.9 - length / 40 + 0.2 * chance, {"judge_follows_length"}),
    (lambda place, length, chance: 0.05 * place + 0.5 * chance, {"judge_follows_position"}),
    (lambda place, length, chance: chance, set()),
    (lambda place, length, chance: float(chance < 0.4), set()),
])  # fmt: skip
def test_a_verdict_that_follows_length_or_place_is_found_and_no_other(verdict, names: set[str]):
    for seed in range(4):
        run = forest_run(judged(seed, verdict))
        said = {n for n in ("judge_follows_length", "judge_follows_position") if found(run, n)}
        assert said == names
    for name in names:
        (finding,) = found(run, name)
        assert abs(finding.numbers["correlation"]) > finding.numbers["most"]
        assert finding.nodes


@pytest.mark.parametrize(("sign", "named"), [(1, "surer"), (-1, "less sure"), (0, None)])
def test_a_verdict_that_follows_the_policys_confidence_is_found(sign: int, named: str | None):
    rng, trees = Random(3), list[Tree]()
    for i in range(24):
        tree = Tree(f"t{i}", [1, 2])
        for _ in range(6):
            size, sure = rng.randrange(3, 20), -rng.random()
            first = tree.extend(0, [5] * size, logp=np.full(size, sure, np.float32), status="done")
            tree.extend(first, [6], role="env", status="done")
            tree.extend(first, [7], logp=np.full(1, sure, np.float32), status="done", finish="eos",
                        scores={"reward": 0.5 + 0.3 * sign * sure + 0.1 * rng.random()})  # fmt: skip
        trees.append(tree)
    findings = found(forest_run(trees), "judge_follows_confidence")
    assert [f"{named} answers" in f.message for f in findings] == ([True] if sign else [])
    bare = Tree("bare", [1])
    for reward in (0.1, 0.2, 0.3):
        bare.extend(0, [5], status="done", finish="eos", scores={"reward": reward})
    unsaid = examine(forest_run([bare]), only=["judge_follows_confidence"]).not_checked
    assert "no log-probs" in unsaid["judge_follows_confidence"]


def test_a_verdict_of_right_and_wrong_says_nothing_about_length():
    long_are_right = [group(f"t{i}", [1, 0] * 4, texts=[[9] * (20 if j % 2 == 0 else 3) for j in range(8)])
                      for i in range(20)]  # fmt: skip
    report = examine(forest_run(long_are_right), only=["judge_follows_length"])
    assert "different verdicts" in report.not_checked["judge_follows_length"]


def test_trees_that_fork_tell_nothing_of_places():
    trees = judged(0, lambda place, length, chance: 0.05 * place + 0.5 * chance)
    for tree in trees:
        tree.extend(next(iter(tree.leaves())), [5], status="done", scores={"reward": 0.0})
        tree.extend(tree.leaves()[0].parent, [6], status="done", scores={"reward": 0.0})
    assert found(forest_run(trees), "judge_follows_position") == []


def asking(leak: float, answered: str = "{}", seed: int = 0) -> CheckedRun:
    """Sums asked in words; a share of the prompts holds the answer too."""
    rng, trees = Random(seed), list[Tree]()
    for i in range(40):
        answer = str(rng.randrange(100, 999))
        hint = f" {answer}" if rng.random() < leak else ""
        tree = Tree(f"t{i}", ids(f"what is {rng.randrange(100, 999)}?{hint}"))
        tree.notes["expected"] = answer
        right = tree.extend(0, ids(answer), status="done", finish="eos", scores={"reward": 1.0})
        right.notes["answer"] = answered.format(answer)
        tree.extend(0, ids("7"), status="done", finish="eos", scores={"reward": 0.0})
        trees.append(tree)
    return replace(forest_run(trees), decode=decode)


def test_answers_in_prompts_are_found_beyond_chance():
    (finding,) = found(asking(0.8), "leaked_answers")
    assert finding.severity == "critical"
    assert 0.6 < finding.numbers["prompts"] < 0.95
    assert {place.node for place in finding.nodes} == {0}
    assert [f.severity for f in found(asking(0.4), "leaked_answers")] == ["warning"]
    assert found(asking(0.0), "leaked_answers") == []
    # Countdown's trees expect the target that the prompt names; right rollouts answer with something else.
    lacking = examine(asking(1.0, "1+{}"), only=["leaked_answers"]).not_checked
    assert "that may be no answer" in lacking["leaked_answers"]
    assert "no tokenizer" in examine(forest_run(mixed()), only=["leaked_answers"]).not_checked["leaked_answers"]


@pytest.mark.parametrize(("gives", "leaks"), [("{}", True), ("{} or so", True), ("no", False)])
def test_a_tool_that_tells_the_answer_to_whatever_it_is_asked_is_found(gives: str, leaks: bool):
    trees: list[Tree] = []
    for i in range(12):
        tree = Tree(f"t{i}", ids("what?"))
        tree.notes["expected"] = answer = str(500 + i)
        for call in ("ab", "cd", "right"):
            turn = tree.extend(0, ids(call), status="done", finish="tool")
            told = answer if call == "right" else gives.format(answer)
            reply = tree.extend(turn, ids(told), role="env", status="done")
            leaf = tree.extend(reply, ids(answer), status="done", finish="eos", scores={"reward": 1.0})
            leaf.notes["answer"] = answer
        trees.append(tree)
    said = found(replace(forest_run(trees), decode=decode), "leaked_answers")
    assert [f.numbers["calls"] for f in said] == ([1.0] if leaks else [])
    if leaks:
        assert {p.node for p in said[0].nodes} <= {n.id for n in trees[0] if n.role == "env"}


@pytest.mark.parametrize("task", ["arithmetic", "countdown", "lookup", "sql", "calculator", "records"])
def test_shipped_tasks_leak_nothing_and_their_verifiers_are_no_biased_judges(task: str, tmp_path: Path, capsys):
    out = tmp_path / task
    assert main(["rollout", "grpo", "--task", task, "--items", "8", "--out", str(out), "--json"]) == 0
    run = open_run(out, "nano")
    names = ["leaked_answers", "judge_follows_length", "judge_follows_position"]
    assert [(f.name, f.message) for f in examine(run, only=names).findings] == []
    save([asking(1.0).rollouts(0).source.trees[0]], tmp_path / "odd")  # pyright: ignore[reportAttributeAccessIssue]
    assert main(["doctor", str(tmp_path / "odd"), "--model", "no-such-model"]) == 2
    assert "has no tokenizer.json here" in capsys.readouterr().err
