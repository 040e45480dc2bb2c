"""A `pydantic-ai` agent with a tool. Base URL and key are in the environment."""

import json
import os

from pydantic_ai import Agent

agent = Agent("openai-chat:policy", instructions="Add with the tool.")


@agent.tool_plain
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


print(agent.run_sync(json.loads(os.environ["ROLLTREE_ITEM"])["prompt"]).output)
