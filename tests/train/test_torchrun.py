"""Ranks that torchrun starts: one machine, and two that meet over the network."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import rolltree
from rolltree.metrics.log import read_metrics
from rolltree.recipe.grpo import Grpo
from rolltree.training.config import TrainConfig, TrainError
from rolltree.training.ranks.start import TorchrunPlace, launched, settled
from tests.train.toy import KNOBS, Early, timeless, tiny_policy

SCRIPT = """
import sys
import rolltree
from rolltree.recipe.grpo import Grpo
from tests.train.toy import KNOBS, Early, tiny_policy

knobs = {**KNOBS, "token_budget": 32, "steps": 2, "checkpoint_every": 1}
rolltree.train(Grpo(kl=0.05), tiny_policy(), Early(), out=sys.argv[1], **{**knobs, "steps": 1})
result = rolltree.train(Grpo(kl=0.05), tiny_policy(), Early(), out=sys.argv[1], resume=True, **knobs)
print("why:", result.why, result.model is None)
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def commands(nodes: int, script: list[str]) -> list[list[str]]:
    run = [sys.executable, "-m", "torch.distributed.run"]
    if nodes == 1:
        return [[*run, "--standalone", "--nproc-per-node", "2", *script]]
    meet = ["--nnodes", "2", "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    return [[*run, *meet, "--node-rank", str(number), *script] for number in range(nodes)]


@pytest.mark.parametrize("nodes", [1, 2])
def test_torchrun_trains_and_resumes_what_one_process_trains(nodes: int, tmp_path: Path) -> None:
    script, out = tmp_path / "script.py", tmp_path / "together"
    script.write_text(SCRIPT)
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(rolltree.__file__).parents[1])}
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=surroundings)
        for command in commands(nodes, [str(script), str(out)])
    ]
    said = [process.communicate(timeout=500)[0] for process in started]
    assert [process.returncode for process in started] == [0] * nodes, "\n".join(said)
    why = sorted(line for told in said for line in told.splitlines() if line.startswith("why:"))
    assert why == ["why: all 2 steps are done False", "why: the first rank has let go True"]
    knobs = {**KNOBS, "token_budget": 32, "steps": 2, "checkpoint_every": 1}
    alone = rolltree.train(Grpo(kl=0.05), tiny_policy(), Early(), out=tmp_path / "alone", **knobs)
    both = timeless(alone.metrics), timeless(read_metrics(out / "metrics.jsonl"))
    trained = [[line for line in lines if line["kind"] == "train"] for lines in both]
    assert len(trained[0]) == len(trained[1]) == 2
    for a, b in zip(*trained, strict=True):
        assert a.keys() == b.keys()
        for key, value in a.items():
            close = value if isinstance(value, str) else pytest.approx(value, rel=1e-3, abs=1e-5)
            assert b[key] == close, (a["step"], key)


def test_a_place_is_read_off_what_torchrun_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TORCHELASTIC_RUN_ID": "x"}
    assert launched(told) == TorchrunPlace(3, 4, 1)
    assert launched({**told, "WORLD_SIZE": "1"}) is None
    # Other programs set some of these names too.
    assert launched({name: told[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}) is None
    assert launched({}) is None
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TrainError, match=r"torchrun started 4 ranks, but ranks=2 is asked for; leave out ranks"):
        settled(replace(TrainConfig(), ranks=2))
