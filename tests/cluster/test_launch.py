"""What --cluster means, and what it says when it cannot."""

import sys
from pathlib import Path

import pytest

from rolltree.cli import main
from rolltree.cli.placed import complete
from rolltree.cluster.errors import ClusterError
from rolltree.cluster.launch import Sizes
from rolltree.cluster.rays import Where, parse_where


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("local", Where("", 2)),
        ("local:5", Where("", 5)),
        ("auto", Where("auto")),
        ("10.0.0.1:6379", Where("10.0.0.1:6379")),
        ("ray://head:10001", Where("ray://head:10001")),
    ],
)
def test_clusters_have_names(text: str, where: Where) -> None:
    assert parse_where(text) == where


@pytest.mark.parametrize(
    ("text", "said"), [("local:0", "at least 1"), ("local:x", "local:N"), ("lokal", "no cluster"), ("", "no cluster")]
)
def test_what_names_no_cluster_is_refused(text: str, said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        parse_where(text)


def test_sizes_are_checked() -> None:
    with pytest.raises(ClusterError, match="0 workers"):
        Sizes(2, 0)


def test_bounds_that_are_none_are_refused_before_a_cluster_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["rollout", "grpo", "--cluster", "local:1", "--cluster-engines", "3:x"]) == 2
    told = capsys.readouterr().err.strip()
    assert told == "rolltree: --cluster-engines '3:x' is no number of engines; give N, or LOW:HIGH"


def test_the_flag_alone_means_this_machine() -> None:
    assert complete(["--cluster"]) == ["--cluster=local:2"]
    assert complete(["--cluster", "--items", "3"]) == ["--cluster=local:2", "--items", "3"]
    assert complete(["--cluster", "auto", "--items", "3"]) == ["--cluster", "auto", "--items", "3"]
    assert complete(["--items", "3"]) == ["--items", "3"]


@pytest.mark.parametrize("verb", ["rollout grpo", "train grpo --out run"])
def test_without_ray_one_line_says_how_to_get_it(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main([*verb.split(), "--cluster"]) == 2
    told = capsys.readouterr().err.strip()
    assert told == "rolltree: --cluster needs Ray, which is not installed; pip install 'rolltree[cluster]'"
    assert not list(tmp_path.iterdir())
