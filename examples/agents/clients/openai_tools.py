"""The `openai` client with a tool, until the policy answers in words. Base URL and key are in the environment."""

import json
import os

from openai import OpenAI

ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "The sum of two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
client, item = OpenAI(), json.loads(os.environ["ROLLTREE_ITEM"])
messages = [{"role": "user", "content": item["prompt"]}]
while True:
    said = client.chat.completions.create(model="policy", messages=messages, tools=[ADD]).choices[0].message
    messages.append(said.model_dump(exclude_none=True))
    if not said.tool_calls:
        break
    for call in said.tool_calls:
        total = sum(json.loads(call.function.arguments).values())
        messages.append({"role": "tool", "tool_call_id": call.id, "content": str(total)})
print(said.content)
