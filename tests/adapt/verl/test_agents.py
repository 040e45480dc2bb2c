"""An agent inside verl: its calls are answered by verl's own server, and its rollouts are verl's outputs."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import quote

import pytest

from rolltree.integrations.data import distinct_items, verl_rows
from rolltree.integrations.errors import AdaptError
from rolltree.task.nano.calculator import Calculator
from rolltree.task.registry import load_task

pytest.importorskip("verl.experimental.agent_loop.agent_loop", reason="verl is not installed: make test-verl")

from tests.adapt.verl.test_loop import ITEMS, PARAMS, POLICY, Server, loop_of

PROGRAM = Path(__file__).parents[3] / "examples" / "agents" / "calculator_agent.py"
NATIVE = "calculator?level=1&fail_rate=0"


def played(command):
    return f"agent:{command}?task={quote(NATIVE, safe='')}"


def outputs_of(task, *, prompt_length=64, recipe="grpo", knobs=None):
    rows = verl_rows(distinct_items(load_task(task), ITEMS), "calculator")

    async def go():
        loop = loop_of(Server(), task=task, recipe=recipe, knobs=knobs, scores="credit")
        loop.rollout_config.prompt_length = prompt_length
        given = {"raw_prompt": rows[0]["prompt"], "uid": "u", "session_id": 0, "global_steps": 3, **rows[0]}
        return await loop.run(dict(PARAMS), **given)

    return rows[0], asyncio.run(go())


def test_the_data_of_an_agent_are_those_of_the_task_it_plays():
    command = played(f"{sys.executable} {PROGRAM}")
    assert verl_rows(distinct_items(load_task(command), 4), "x") == verl_rows(distinct_items(load_task(NATIVE), 4), "x")


@pytest.mark.parametrize(
    ("agent", "recipe", "knobs"),
    [
        (f"{sys.executable} {PROGRAM}", "grpo", {"group": 3}),
        ("tests.gateway.agents:calculator", "treepo", {"leaves": 6, "segment": 0}),
    ],
)
def test_verls_server_answers_an_agent_and_its_rollouts_are_outputs(agent, recipe, knobs):
    row, outputs = outputs_of(played(agent), recipe=recipe, knobs=knobs)
    assert len(outputs) == next(iter(knobs.values()))
    task, codec = Calculator(level=1, fail_rate=0.0), POLICY.codec
    item = next(item for item in distinct_items(task, ITEMS) if item.id == row["extra_info"]["item"])
    for output in outputs:
        assert codec.decode(output.prompt_ids) == item.prompt, "what the agent asks first, as it asks it"
        assert len(output.response_ids) == len(output.response_mask) == len(output.response_logprobs)
        last = codec.decode(output.response_ids).rstrip("\n").rpartition("\n")[2]
        assert output.outcome == float(last == f"={item.answer}")
    assert any(0 in output.response_mask for output in outputs), "the calculator's words are not trained"


def test_an_agent_that_asks_for_more_than_verl_has_room_is_refused():
    with pytest.raises(AdaptError, match="prompt_length=4"):
        outputs_of(played("tests.gateway.agents:calculator"), prompt_length=4)
