"""A `langgraph` ReAct agent. Base URL and key are in the environment."""

import json
import os

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.prebuilt import create_react_agent


@tool
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


agent = create_react_agent(ChatOpenAI(model="policy"), [add], prompt="Add with the tool.")
item = json.loads(os.environ["ROLLTREE_ITEM"])
told = agent.invoke({"messages": [("user", item["prompt"])]})
print(told["messages"][-1].content)
