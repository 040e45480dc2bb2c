"""The word after --engine: what it starts, and what is said where it cannot."""

import asyncio
import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest

from rolltree.cli import main as command
from rolltree.engine.choose import choose_engine
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import EngineError
from rolltree.generate.independent import Independent
from rolltree.generate.runner import grow
from rolltree.policy.load import load_codec, load_model
from rolltree.policy.models import model_folder
from rolltree.task.registry import load_task
from tests.engine.serving import serving


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("rollout grpo --engine vlm", "did you mean 'vllm'"),
        (
            "rollout grpo --engine gpu.example",
            "known: local, vllm, vllm-ipc, vllm-nccl, vllm-shared (or the address of a server, such as http://127.0.0.1:8000)",
        ),
        ("rollout grpo --engine http://127.0.0.1:9", "no server answers at http://127.0.0.1:9"),
        ("train grpo --engine http://127.0.0.1:9", "no server answers at http://127.0.0.1:9"),
    ],
)
def test_an_engine_that_is_not_there_is_one_sentence(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command(words.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_the_way_to_get_it_is_named(capsys):
    assert command(["rollout", "grpo", "--engine", "vllm"]) == 2
    assert "pip install vllm" in capsys.readouterr().err


def test_the_codec_of_a_folder_needs_no_weights():
    folder = model_folder("nano")
    codec = load_codec(folder)
    assert (codec.vocab_size, codec.eos_id) == (99, 1)
    assert codec.decode(codec.encode("2+3=5")) == "2+3=5"


def test_a_served_policy_grows_what_the_policy_would_and_cannot_be_trained(tmp_path: Path):
    loaded = load_model("nano")

    async def main():
        async with serving(make_engine=lambda: LocalEngine(loaded), most=20) as server:
            server.models[0]["max_model_len"] = 512
            engine = await choose_engine(server.address, "nano")
            task = load_task("countdown")
            items = list(itertools.islice(task.items("train", 0), 2))
            forest = await grow(Independent(4), engine, task, items, seed=0)
            leaves = list(forest.leaves())
            assert len(leaves) == 8
            for tree, leaf in leaves:
                assert leaf.status == "done"
                before = np.concatenate([n.actions for n in tree.path(leaf)[:-1]])
                scored = await server.engine.score(np.concatenate([before, leaf.actions]), len(before))
                assert np.allclose(scored.logp, leaf.logp, atol=1e-4)
            await engine.close()
            with pytest.raises(EngineError, match="takes no new weights"):
                await choose_engine(server.address, loaded, updates=True)
            await server.engine.close()

    asyncio.run(main())
