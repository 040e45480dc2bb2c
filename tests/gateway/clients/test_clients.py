"""Real clients and frameworks as agents, unchanged: `make test-agents` runs them from an environment of their own."""

import os
from pathlib import Path

import pytest

from rolltree.control.ledger import Budget
from rolltree.gateway.agents.task import AgentTask
from rolltree.generate.aside import ASIDE
from rolltree.generate.independent import Independent
from rolltree.task.protocol import Item, Verdict, spoken_by
from tests.gateway.policies import caller
from tests.gateway.test_agents import grown

ROOT = Path(__file__).resolve().parents[3]
CLIENTS = ROOT / "examples/agents/clients"
PYTHON = Path(os.environ.get("ROLLTREE_AGENTS", ROOT / ".venv-agents")) / "bin/python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="make test-agents makes their environment")


def calling(name, **arguments):
    told = ",".join(f'"{key}":{value}' for key, value in arguments.items())
    return f'<tool_call>{{"name":"{name}","arguments":{{{told}}}}}</tool_call>'


ADD = calling("add", a=17, b=25)
RUN = calling("bash", command='"expr 17 + 25 > answer.txt"')
SUBMIT = calling("bash", command='"echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"')
PLAIN = {"call": ADD, "answer": "42"}
KINDS = {
    "openai_tools": PLAIN,
    "anthropic_tools": PLAIN,
    "openai_agents_mcp": PLAIN,
    "langgraph_react": PLAIN,
    "pydantic_ai_tools": PLAIN,
    "smolagents_tools": {"call": ADD, "answer": calling("final_answer", answer='"42"'), "heard": "Observation:\n42"},
    "mini_swe": {"call": RUN, "answer": SUBMIT},
}
IGNORED = {"smolagents_tools": ("tool_choice",)}
"""It asks for calls that are forced, and nothing is forced here."""
STOPS = {"smolagents_tools": ("Observation:", "Calling tools:")}


class Sums:
    name, level, stop, max_tokens, max_turns = "sums", 0, (), 4000, 8

    def items(self, split, seed=0):
        yield Item("one", "What is 17+25?", "42")

    def start(self, item):
        return None, None

    async def verify(self, item, state, text):
        return Verdict(float(text.strip() == item.answer), answer=text)


@pytest.mark.parametrize("name", KINDS)
def test_an_agent_as_people_write_them_is_a_rollout_of_exactly_what_was_sampled(name):
    """The call of the tool and the last answer stand in the tree as sampled, and the agent's answer is right."""
    script = CLIENTS / f"{name}.py"
    assert len(script.read_text().splitlines()) < 40
    engine, budget = caller(**KINDS[name], max_context=60_000), Budget()
    task = AgentTask(f"{PYTHON} {script}", task=Sums(), seconds=120, stop=STOPS.get(name, ()),
                     ignore=IGNORED.get(name, ()))  # fmt: skip
    (tree,) = grown(engine, spoken_by(task, engine.codec), Independent(1), items=1, budget=budget)
    assert [leaf.status for leaf in tree.leaves()] == ["done"] * len(tree.leaves()), [e.why for e in tree.events]
    assert {leaf.scores["reward"] for leaf in tree.leaves()} == {1.0}
    said = [engine.codec.decode_exact(node.actions) for node in tree if node.trainable]
    assert sorted(said) == sorted([f"{KINDS[name]['call']}<|im_end|>", f"{KINDS[name]['answer']}<|im_end|>"])
    assert sum(len(node) for node in tree if node.trainable) == budget.spent.decoded
    # smolagents tells its history in words of its own, so its second call is a context of its own.
    assert any(leaf.notes.get(ASIDE) for leaf in tree.leaves()) == (name == "smolagents_tools")
