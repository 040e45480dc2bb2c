"""A `smolagents` agent that calls tools. It ends by its own tool `final_answer`."""

import json
import os

from smolagents import OpenAIServerModel, ToolCallingAgent, tool


@tool
def add(a: int, b: int) -> int:
    """The sum of two numbers.

    Args:
        a: one number
        b: the other
    """
    return a + b


item = json.loads(os.environ["ROLLTREE_ITEM"])
base, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
model = OpenAIServerModel("policy", api_base=base, api_key=key, flatten_messages_as_text=True)
agent = ToolCallingAgent([add], model, verbosity_level=0, max_steps=4)
print(agent.run(item["prompt"]))
