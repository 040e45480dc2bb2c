"""What `swarm` promises beside what all of its kind do."""

from rolltree_papers.swarm import Swarm


def test_a_swarm_reads_no_file_but_what_nodes_published(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"kind": "train"}\n')
    (tmp_path / "other.swarm.jsonl").write_text('{"step": 1, "place"')  # the other node still writes it
    assert Swarm(str(tmp_path))._published() == []
