"""What forests say: numbers of planted trees, equal from memory and from disk, and the nodes that show them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.doctor import examine, open_run
from rolltree.doctor.finding import Finding
from rolltree.filter.vote import MajorityVote
from rolltree.metrics.policy import ess
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.step import FROM_FORESTS, GROWN, TRAINED
from rolltree.metrics.usage import idle
from rolltree.tree import Tree
from rolltree.tree.source import EventColumns
from rolltree.tree.store import jsonl
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import save, save_step
from tests.doctor.planted import forest_run, group, held, mixed

FAMILIES = (*GROWN, *TRAINED, *FROM_FORESTS)


def numbers(trees: list[Tree], version: int | None = None) -> dict[str, float]:
    return {k: v for family in FAMILIES for k, v in family(held(trees, version)).items()}


def found(trees: list[Tree], name: str) -> Finding:
    (finding,) = examine(forest_run(trees), only=[name]).findings
    assert finding.nodes
    return finding


def shown(finding: Finding) -> set[tuple[str, int]]:
    return {(place.tree, place.node) for place in finding.nodes}


def test_healthy_groups_are_silent_and_numbers_are_as_counted_by_hand() -> None:
    report = examine(forest_run(mixed()))
    assert report.findings == ()
    n = numbers([group("a", [1, 0, 1]), group("b", [0, 0]), group("c", [1, 1])])
    assert n["reward/mean"] == pytest.approx(4 / 7)
    assert n["reward/zero_variance_trained"] == pytest.approx(2 / 3)
    assert n["reward/all_solved"] == n["reward/all_wrong"] == pytest.approx(1 / 3)
    assert n["reward/all_solved_tokens"] == n["reward/all_wrong_tokens"] == pytest.approx(2 / 7)
    assert n["rollout/length"] == 4
    assert n["policy/ess"] == pytest.approx(1)


def test_groups_without_variance_are_shown_by_their_roots() -> None:
    finding = found([group("flat", [0, 0, 0]), group("flat2", [1, 1]), group("mixed", [1, 0])], "zero_variance")
    assert shown(finding) == {("flat", 0), ("flat2", 0)}


def test_groups_that_were_dropped_do_not_count_as_taught() -> None:
    dropped = group("flat", [0, 0, 0])
    for leaf in dropped.leaves():
        leaf.usage = "dropped: all outcomes are 0"
    assert numbers([dropped, group("mixed", [1, 0])])["reward/zero_variance_trained"] == 0


def test_copies_are_found_however_runs_were_cut_and_only_of_wrong_rollouts() -> None:
    same = [[7, 8, 9, 7]] * 3 + [[1, 8, 9, 7]]
    copies, learnt = group("copies", [0, 0, 0, 1], texts=same), group("learnt", [1, 1, 1, 0], texts=same)
    copies.cut(2, 1)
    copies.cut(3, 3)
    assert numbers([copies, learnt])["rollout/duplicates"] == 0.5
    finding = examine(forest_run([copies]), {"duplicates": {"most": 0.4}}, only=["duplicates"]).findings[0]
    assert shown(finding) == {("copies", 2), ("copies", 3)}


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), min_size=1, max_size=6), st.randoms())
@settings(max_examples=40, deadline=None)
def test_transcripts_are_equal_exactly_where_tokens_are(texts: list[list[int]], rng) -> None:
    tree = group("t", [0] * len(texts), texts=texts)
    for leaf in list(tree.leaves()):
        tree.cut(leaf, rng.randrange(1, len(leaf) + 1))
    keys = held([tree]).transcript
    for i, a in enumerate(texts):
        for j, b in enumerate(texts):
            assert (keys[i] == keys[j]) == (a == b)


def test_near_copies() -> None:
    rng = np.random.default_rng(0)
    base = rng.integers(0, 50, 40)
    nearly = [np.concatenate([base, [60 + i]]) for i in range(4)]
    other = [rng.integers(0, 50, 41) for _ in range(4)]
    finding = found([group("near", [1, 0, 0, 0], texts=nearly)], "near_duplicates")
    assert len(finding.nodes) == 3
    assert not examine(forest_run([group("learnt", [1, 1, 1, 0], texts=nearly)]), only=["near_duplicates"]).findings
    assert not examine(forest_run([group("far", [1, 0, 0, 0], texts=other)]), only=["near_duplicates"]).findings


def test_trees_on_one_branch_collapse_at_their_first_fork() -> None:
    lone, wide = (Tree(name, [1]) for name in ("lone", "wide"))
    for tree, below in ((lone, (15, 1)), (wide, (8, 8))):
        trunk = tree.extend(0, [2], status="done")
        for count in below:
            branch = tree.extend(trunk, [3], status="done")
            for i in range(count):
                tree.extend(branch, [i], status="done", scores={"reward": i % 2})
    assert numbers([wide])["rollout/effective_branches"] == pytest.approx(2)
    h = -(15 / 16 * math.log(15 / 16) + 1 / 16 * math.log(1 / 16))
    assert numbers([lone])["rollout/effective_branches"] == pytest.approx(math.exp(h))
    assert shown(found([lone], "branch_collapse")) == {("lone", 0)}


def test_the_same_transcript_with_two_outcomes_is_a_noisy_verifier() -> None:
    tree = group("noisy", [1, 0, 0], texts=[[7, 8], [7, 8], [9, 8]])
    assert shown(found([tree], "noisy_verifier")) == {("noisy", 1), ("noisy", 2)}
    for leaf, answer in zip(tree.leaves(), ("4", "5", "4"), strict=True):
        leaf.notes["answer"] = answer
    assert shown(found([tree], "split_answers")) == {("noisy", 1), ("noisy", 3)}


def test_an_answer_whose_length_is_rewarded_is_not_called_right_and_wrong() -> None:
    tree = group("longer", [0.2, 0.1, 1.1], texts=[[7, 8], [7, 9, 8], [5, 8]])
    for leaf, answer in zip(tree.leaves(), ("4", "4", "5"), strict=True):
        leaf.notes["answer"] = answer
        leaf.scores["solved"] = float(answer == "5")
    assert numbers([tree])["reward/split_answers"] == 0
    next(iter(tree.leaves())).scores["solved"] = 1.0
    assert numbers([tree])["reward/split_answers"] == 1


def test_failures_are_counted_by_what_broke() -> None:
    trees = mixed()
    leaf = trees[0].extend(0, [4, 4])
    trees[0].close(leaf, "failed", "error", "the verifier: ValueError: boom")
    n = numbers(trees)
    assert n["rollout/failed_share"] == n["rollout/failed/verifier"] == pytest.approx(1 / 25)
    finding = found(trees, "crashes")
    assert shown(finding) == {("t0", leaf.id)}
    assert "most often the verifier" in finding.message


def test_wrong_majorities() -> None:
    tree = group("vote", [0, 0, 1])
    for leaf, answer in zip(tree.leaves(), ("4", "4", "5"), strict=True):
        leaf.usage, leaf.notes["answer"] = "", answer
    MajorityVote()(tree, 8)
    n = numbers([tree])
    assert n["reward/vote_wrong"] == 1
    assert n["reward/vote_share"] == pytest.approx(2 / 3)
    assert n["reward/mean"] == pytest.approx(1 / 3), "the verifier's word"
    assert n["reward/shaped"] == pytest.approx(2 / 3), "what credit saw"
    assert shown(found([tree], "wrong_labels")) == {("vote", 0)}


def test_tools_that_fail() -> None:
    tree = Tree("tools", [1])
    for failed in (True, True, True, False):
        call = tree.extend(0, [5], status="done")
        answer = tree.extend(call, [6], role="env", notes={"failed": True} if failed else {})
        tree.extend(answer, [7], status="done", scores={"reward": 0.0})
    assert numbers([tree])["rollout/tool_failures"] == 0.75
    assert len(found([tree], "tool_failures").nodes) == 3


def test_age_of_tokens_and_of_grafted_branches() -> None:
    tree, old = group("new", [1, 0]), group("old", [1, 0])
    tree.graft(0, old, 1)
    n = numbers([tree], version=25)
    assert n["staleness/mean"] == n["staleness/replayed_mean"] == 20
    assert n["staleness/replayed"] == pytest.approx(1 / 3)
    run = forest_run([tree])
    run.rollouts(0)._version = 25  # pyright: ignore[reportPrivateUsage]
    assert {f.name for f in examine(run).findings} == {"stale_rollouts", "old_replay"}


def test_heavy_weights() -> None:
    tree = group("heavy", [1, 0, 1, 0])
    tree[1].sampling_logprob = np.full(4, -3.0, np.float32)
    w = np.array([math.exp(8.0), 1, 1, 1])
    assert numbers([tree])["policy/ess"] == pytest.approx(w.sum() ** 2 / (4 * (w**2).sum()), rel=1e-4)
    assert ("heavy", 1) in shown(found([tree], "heavy_weights"))


@given(st.lists(st.floats(-30, 30), min_size=1, max_size=20), st.floats(-50, 50))
def test_the_effective_share_ignores_scale_and_stays_in_bounds(log_w: list[float], shift: float) -> None:
    share = ess(np.array(log_w))
    assert 1 / len(log_w) - 1e-9 <= share <= 1 + 1e-9
    assert share == pytest.approx(ess(np.array(log_w) + shift), rel=1e-6)


def test_shared_prefixes_that_outweigh() -> None:
    tree = Tree("stem", [1])
    stem = tree.extend(0, [2], status="done", gain=np.array([8.0], np.float32), loss=np.zeros(1, np.float32))
    for i in range(8):
        size = 6
        tree.extend(
            stem, [i + 3] * size, status="done", scores={"reward": i % 2}, usage="trained",
            gain=np.full(size, 0.05, np.float32), loss=np.zeros(size, np.float32),
        )  # fmt: skip
    n = numbers([tree])
    assert n["policy/prefix_tokens"] == pytest.approx(1 / 49)
    assert n["policy/prefix_pull"] == pytest.approx(8 / (8 + 48 * 0.05))
    assert shown(found([tree], "prefix_overweight")) == {("stem", stem.id)}


def test_prompts_without_a_finished_rollout_starve() -> None:
    slow = Tree("slow", [1])
    for finish in ("budget", "abort"):
        slow.extend(0, [2, 3], status="paused" if finish == "abort" else "done", finish=finish)
    assert shown(found([slow, *mixed(3)], "starved_prompts")) == {("slow", 0)}


def test_idle_time_of_an_engine_with_one_straggler() -> None:
    tree = Tree("slow", [1])
    nodes = [tree.extend(0, [i]) for i in range(4)]
    tree.event("fork", tree.root, at=1.0, children=[n.id for n in nodes])
    for node, end in zip(nodes, (2.0, 2.0, 2.0, 11.0), strict=True):
        tree.close(node, "done", "eos", at=end)
    assert idle(held([tree]).source.events()) == pytest.approx(1 - 13 / 40)
    assert idle(EventColumns(np.zeros(0, int), np.zeros(0, int), [], [], np.zeros(0), [])) is None


def rich() -> list[Tree]:
    """Trees with a bit of everything."""
    trees = [*mixed(3), group("copy", [1, 0, 0, 1], texts=[[7, 8]] * 4)]
    trees[0].cut(2, 2)
    trees[1].graft(0, group("old", [1, 0]), 1)
    call = trees[1].extend(
        0, [5], status="done", logp=np.ones(1, np.float32) * -1, sampling_logprob=np.ones(1, np.float32) * -1
    )
    reply = trees[1].extend(call, [6, 6], role="env", notes={"failed": True})
    trees[1].extend(reply, [9], status="done", scores={"reward": 0.0, "format": 1.0}, notes={"answer": "3"})
    leaf = trees[2].extend(0, [4, 4])
    trees[2].event("extend", trees[2].root, at=0.5, children=[1, 2])
    trees[2].close(leaf, "failed", "error", "the engine: boom", at=2.0)
    trees[2].event("stop", trees[2][1], at=3.0)
    trees[2].event("stop", trees[2][2], at=1.0)
    return trees


def test_memory_disk_and_interchange_say_the_same(tmp_path: Path) -> None:
    trees = rich()
    save(trees, tmp_path / "saved", states="drop")
    jsonl.write(trees, tmp_path / "nodes.jsonl")
    from_disk = Rollouts(open_forest(tmp_path / "saved"))
    said = numbers(trees)
    assert said["time/idle_load"] > 0
    assert said == {k: v for family in FAMILIES for k, v in family(from_disk).items()}
    read = numbers(list(jsonl.read(tmp_path / "nodes.jsonl")))
    without_events = {k for k in said if k.startswith(("time/", "rollout/failed/", "rollout/retries"))}
    assert {k: v for k, v in read.items() if k not in without_events} == {
        k: v for k, v in said.items() if k not in without_events
    }
    assert read["rollout/failed_share"] == said["rollout/failed_share"]


def test_runs_open_from_whatever_was_written(tmp_path: Path) -> None:
    flat = [group("a", [0, 0, 0]), group("b", [0, 0, 0])]
    jsonl.write(flat, tmp_path / "other" / "nodes.jsonl")
    save_step(flat, tmp_path / "steps", 3)
    save_step(mixed(), tmp_path / "steps", 7)
    for path in (tmp_path / "other", tmp_path / "other" / "nodes.jsonl"):
        assert {p.step for f in examine(path).findings for p in f.nodes} == {0}
        assert {f.name for f in examine(path).findings} >= {"zero_variance", "all_wrong_prompts"}
    assert [s for s, _ in sorted(open_run(tmp_path / "steps").forests.items())] == [3, 7]


def test_a_forest_of_latents_is_not_taken_for_tokens() -> None:
    tree = Tree("flow", np.zeros((1, 2), np.float32))
    for reward in (1.0, 0.0):
        tree.extend(0, np.ones((2, 2), np.float32), status="done", scores={"reward": reward})
    report = examine(forest_run([tree]))
    assert "noisy_verifier" in report.not_checked
    assert report.findings == ()
