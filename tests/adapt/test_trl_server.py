"""Rollouts for TRL from the server that TRL gives its weights to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import rolltree
from rolltree.engine.local import LocalEngine
from rolltree.integrations.errors import AdaptError
from tests.adapt.small import batch_of, trainer_of
from tests.engine.serving import Server, serving

pytest.importorskip("trl", reason="TRL is not installed: pip install 'rolltree[trl]'")


@contextmanager
def served() -> Iterator[Server]:
    """The embedded policy behind a server of another thread."""
    up, found = threading.Event(), list[Any]()

    async def serve() -> None:
        async with serving(make_engine=lambda: LocalEngine(rolltree.load("nano"))) as server:
            over = asyncio.Event()
            found.extend([server, over, asyncio.get_running_loop()])
            up.set()
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert up.wait(60)
    try:
        yield found[0]
    finally:
        found[2].call_soon_threadsafe(found[1].set)
        thread.join()


def by_server(trainer: Any, address: str) -> Any:
    """The trainer as it is under use_vllm and FSDP, both of which need a GPU to begin."""
    trainer.args.use_vllm, trainer.args.vllm_mode = True, "server"
    trainer.args.vllm_server_base_url, trainer.is_fsdp_enabled = address, True
    return trainer


def test_trees_come_from_trls_server_even_where_the_model_is_sharded(tmp_path: Any) -> None:
    forests: list[Any] = []
    with served() as server:
        trainer = by_server(trainer_of("treepo", rolltree.load_task("arithmetic"), tmp_path), server.address)
        trainer.rollout_func.watch = lambda _, forest: forests.append(forest)
        for step in (0, 3):
            trainer.state.global_step = step
            out = trainer._generate_and_score_completions(batch_of(trainer))
            written = {int(v) for _, n in forests[-1].nodes() if n.version is not None for v in n.version}
            assert written == {step}
    assert len([a for a in server.asked if a.get("stream")]) > 4
    ids, seen = (torch.cat([out[f"prompt_{x}"], out[f"completion_{x}"]], 1) for x in ("ids", "mask"))
    read, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, seen, out["completion_ids"].shape[1])
    own = (out["completion_mask"] * out["tool_mask"]).bool()
    assert own.sum() > 20
    torch.testing.assert_close(out["sampling_per_token_logps"][own], read[own], atol=1e-4, rtol=0)


def test_what_has_no_engine_to_ask_is_refused(tmp_path: Any) -> None:
    task = rolltree.load_task("arithmetic")
    inside = trainer_of("treepo", task, tmp_path / "inside")
    inside.args.use_vllm, inside.args.vllm_mode, inside.args.vllm_tensor_parallel_size = True, "colocate", 2
    with pytest.raises(AdaptError, match=r"vllm_tensor_parallel_size=2.*set it to 1, or vllm_mode='server'"):
        inside.rollout_func(["1+1="], inside)
    cut = trainer_of("treepo", task, tmp_path / "cut")
    cut._dist.fsdp_version = 1
    with pytest.raises(AdaptError, match=r"first version.*'version': 2.*use_vllm=True"):
        cut.rollout_func([row["prompt"] for row in batch_of(cut)], cut)
