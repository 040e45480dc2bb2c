"""What the doctor says of agents, on forests that they left."""

import numpy as np

from rolltree.doctor import examine
from rolltree.gateway.agents.task import AgentTask
from rolltree.gateway.ask import Ask
from rolltree.gateway.template import template_of
from rolltree.generate.independent import Independent
from rolltree.policy.codec import HFCodec
from rolltree.testing.tiny import tiny_engine
from tests.doctor.planted import forest_run
from tests.gateway import agents
from tests.gateway.chats import tokenizer
from tests.gateway.test_agents import NATIVE, grown
from tests.gateway.test_contexts import Session

NAMES = ["thrown_answers", "endless_agents", "template_drift"]


def found(forest):
    return {finding.name: finding for finding in examine(forest_run(list(forest)), only=NAMES).findings}


def test_well_behaved_agents_are_silent():
    assert found(grown(tiny_engine(), AgentTask(agents.echo, task=NATIVE), Independent(3), items=2)) == {}


def test_answers_that_are_asked_for_again_and_again():
    async def retries(item):
        for _ in range(5):
            said = await agents.ask(item, [{"role": "user", "content": "he!"}], stop=["!"])
        return said["content"]

    async def asks_first(item):
        await agents.ask(item, [{"role": "user", "content": item["prompt"]}], stop=["!"])
        return await retries(item)

    forest = grown(tiny_engine(), AgentTask(asks_first, task=NATIVE), Independent(2), items=2)
    finding = found(forest)["thrown_answers"]
    sampled = sum(len(n) for _, n in forest.nodes() if n.trainable)
    thrown = sum(len(n) for _, n in forest.nodes() if n.usage == "dropped: asked again")
    assert np.isclose(finding.numbers["share"], thrown / sampled)


def test_agents_that_never_end():
    forest = grown(tiny_engine(), AgentTask(agents.hanging, task=NATIVE, seconds=0.3), Independent(2), items=1)
    finding = found(forest)["endless_agents"]
    assert (finding.severity, finding.numbers["share"]) == ("critical", 1.0)


def test_a_template_that_rewrites_turns():
    codec = HFCodec(tokenizer("think"))
    session, chat = Session(codec, template_of(codec.tokenizer)), [{"role": "user", "content": "x"}]
    for _ in range(4):
        _, (said,) = session.call(Ask(tuple(chat)), [*codec.encode("<think>hm</think>in"), codec.eos_id])
        chat += [said.message, {"role": "user", "content": "y"}]
    finding = found([session.record.tree])["template_drift"]
    assert np.isclose(finding.numbers["share"], 3 / 4)
