"""A strategy as verl's agent loop: verl's own base class, tokeniser wiring and TransferQueue worker around our tree."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

import rolltree
from rolltree.engine.local import LocalEngine
from rolltree.engine.protocol import EngineError, Request, Sampling
from rolltree.generate.strategy import NeedsError
from rolltree.integrations.data import distinct_items, verl_rows
from rolltree.integrations.errors import AdaptError

pytest.importorskip("verl.experimental.agent_loop.agent_loop", reason="verl is not installed: make test-verl")

from omegaconf import OmegaConf
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput, DictConfigWrap
from verl.workers.rollout.replica import TokenOutput

from rolltree.integrations.verl.loop import TreeAgentLoop, TreeOutput
from rolltree.integrations.verl.server import ServerEngine

TASK = "arithmetic"
POLICY = rolltree.load("nano")
ITEMS = 6
PARAMS = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


class Server:
    """verl's client contract, served by the embedded engine: ids and sampling parameters in, `TokenOutput` out."""

    def __init__(self) -> None:
        self.engine = LocalEngine(POLICY)
        self.asked: list[dict] = []
        self.fail = False

    async def generate(self, request_id, *, prompt_ids, sampling_params, **_):
        self.asked.append(sampling_params)
        if self.fail:
            raise RuntimeError("the server is gone")
        sampling = Sampling(
            max_tokens=sampling_params["max_tokens"], temperature=sampling_params["temperature"],
            stop=tuple(sampling_params.get("stop", ())), seed=sampling_params.get("seed"),
        )  # fmt: skip
        made = await self.engine.submit(Request(np.asarray(prompt_ids, np.int32), sampling))
        return TokenOutput(
            token_ids=made.actions.tolist(), log_probs=made.sampling_logprob.tolist(), stop_reason="completed",
            extra_fields={"global_steps": 7},
        )  # fmt: skip


def loop_of(server, *, recipe="treepo", task=TASK, items=ITEMS, **options):
    tokenizer = POLICY.codec.tokenizer
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    config = OmegaConf.create({
        "actor_rollout_ref": {"rollout": {"prompt_length": 64, "response_length": 64}}, "data": {},
    })  # fmt: skip
    return TreeAgentLoop(
        trainer_config=DictConfigWrap(config), server_manager=server, tokenizer=tokenizer, processor=None,
        dataset_cls=object, data_config=DictConfigWrap(config.data), recipe=recipe, task=task, items=items, **options,
    )  # fmt: skip


def row(number=0):
    made = verl_rows(distinct_items(rolltree.load_task(TASK), ITEMS), TASK)[number]
    return {"raw_prompt": made["prompt"], "uid": "u", "session_id": 0, "global_steps": 3, **made}


def outputs_of(server=None, number=0, **options):
    async def go():
        own = server or Server()
        return await loop_of(own, **options).run(dict(PARAMS), **row(number))

    return asyncio.run(go())


def test_one_session_returns_the_leaves_of_a_tree_token_for_token():
    outputs = outputs_of(knobs={"leaves": 6, "segment": 4})
    assert len(outputs) == 6
    codec = POLICY.codec
    item = distinct_items(rolltree.load_task(TASK), ITEMS)[0]
    heads = {tuple(output.response_ids[:4]) for output in outputs}
    assert len(heads) < 6, "leaves share their first segments"
    for output in outputs:
        assert codec.decode(output.prompt_ids) == item.prompt
        assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
        verdict = asyncio.run(rolltree.load_task(TASK).verify(item, None, codec.decode(output.response_ids)))
        assert output.outcome == output.reward_score == verdict.score
        assert output.extra_fields["min_global_steps"] == 7


def test_log_probs_are_the_servers_own():
    outputs = outputs_of(recipe="grpo")
    model = POLICY.model
    for output in outputs:
        ids = torch.tensor([[*output.prompt_ids, *output.response_ids]])
        read = model(ids).logits.log_softmax(-1)[0, len(output.prompt_ids) - 1 : -1]
        own = read.gather(1, torch.tensor(output.response_ids)[:, None])[:, 0]
        torch.testing.assert_close(own, torch.tensor(output.response_logprobs), atol=1e-4, rtol=0)


def test_every_leaf_keeps_its_own_reward_when_verl_copies_the_last_ones(monkeypatch):
    tq = pytest.importorskip("verl.trainer.ppo.v1.agent_loop_tq", reason="TransferQueue is not installed")
    put = []

    async def keep(**told):
        put.append(told)

    monkeypatch.setattr(tq.tq, "async_kv_batch_put", keep)
    worker_class = tq.AgentLoopWorkerTQ.__ray_metadata__.modified_class
    worker = worker_class.__new__(worker_class)
    worker.reward_loop_worker_handles, worker.distillation_enabled, worker.processor = None, False, None
    given = {}
    for scores in ("outcome", "credit"):
        grown = (outputs_of(number=n, scores=scores, recipe="grpo", knobs={"group": 6}) for n in range(ITEMS))
        outputs = next(leaves for leaves in grown if len({leaf.outcome for leaf in leaves}) > 1)
        told = [(output.outcome, list(output.scores)) for output in outputs]
        asyncio.run(worker_class._agent_loop_postprocess(worker, outputs, False, **row()))
        fields = put.pop()["fields"]
        for i, (outcome, own) in enumerate(told):
            assert fields[i]["rm_scores"].tolist() == pytest.approx(own)
            extra = fields[i]["extra_fields"]
            assert getattr(extra, "data", extra)["reward_extra_info"] == {"outcome": outcome}
            if scores == "outcome":
                assert sum(own) == outcome
        given[scores] = told
    assert any(len(set(own)) > 1 or own[0] not in (0, 1) for _, own in given["credit"])
    plain = AgentLoopOutput(prompt_ids=[1], response_ids=[2, 3], response_mask=[1, 1], metrics=AgentLoopMetrics())
    plain.reward_score = 9.0
    assert plain.as_dict()["rm_scores"].tolist() == [0, 9], "what TreeOutput is there to prevent"


def test_a_broken_server_gives_no_output_and_no_zero():
    server = Server()
    server.fail = True
    assert outputs_of(server, recipe="grpo") == []


@pytest.mark.papers("latr")
def test_what_cannot_be_joined_is_refused():
    with pytest.raises(AdaptError, match="scores='sum' must be"):
        loop_of(Server(), scores="sum")
    with pytest.raises(AdaptError, match="none of the 2 of arithmetic"):
        outputs_of(items=2, number=5)
    with pytest.raises(NeedsError, match="does not offer"):
        outputs_of(recipe="latr")


def test_the_server_as_an_engine_says_how_a_sample_ended_and_refuses_what_it_has_not():
    async def go():
        server = Server()
        engine = ServerEngine(server, POLICY.codec, 64)
        prefix = np.asarray(engine.codec.encode("16+12-9+4="), np.int32)
        cut = await engine.submit(Request(prefix, Sampling(max_tokens=2)))
        stopped = await engine.submit(Request(prefix, Sampling(max_tokens=40, stop=(",",))))
        ended = await engine.submit(Request(prefix, Sampling(max_tokens=53)))
        given_up = engine.submit(Request(prefix, Sampling(max_tokens=40)))
        given_up.stop("prune")
        empty = await given_up
        hot = await engine.submit(Request(prefix, Sampling(max_tokens=4, temperature=0.7)))
        assert (cut.finish, len(cut.actions), engine.version) == ("length", 2, 7)
        assert (stopped.finish, stopped.stopped_by) == ("stop", ",")
        assert (ended.finish, int(ended.actions[-1])) == ("eos", engine.codec.eos_id)
        assert (empty.finish, len(empty.actions)) == ("prune", 0)
        assert np.isnan(hot.logp).all()
        assert np.isfinite(hot.sampling_logprob).all()
        assert server.asked[1]["include_stop_str_in_output"]
        with pytest.raises(EngineError, match="leaves no room in a context of 64"):
            engine.submit(Request(np.zeros(64, np.int32)))
        with pytest.raises(EngineError, match="cannot score"):
            await engine.score(prefix, 1)

    asyncio.run(go())


def test_verl_makes_the_loop_from_a_configuration():
    import hydra

    wrapped = loop_of(Server())
    config = OmegaConf.create({
        "name": "tree", "_target_": "rolltree.integrations.verl.TreeAgentLoop", "recipe": "grpo",
        "task": f"{TASK}?level=1", "items": 4, "knobs": {"group": 3},
    })  # fmt: skip
    made = hydra.utils.instantiate(
        config, trainer_config=DictConfigWrap(wrapped.config), server_manager=Server(), tokenizer=wrapped.tokenizer,
        processor=None, dataset_cls=object, data_config=DictConfigWrap(wrapped.config.data),
    )  # fmt: skip
    assert made._task.level == 1
    assert isinstance(made, TreeAgentLoop)
    assert issubclass(TreeOutput, AgentLoopOutput)
