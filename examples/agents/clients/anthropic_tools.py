"""The `anthropic` client with a tool, streaming. Base URL and key are in the environment."""

import json
import os

from anthropic import Anthropic

ADD = {
    "name": "add",
    "description": "The sum of two numbers.",
    "input_schema": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
}
client, item = Anthropic(), json.loads(os.environ["ROLLTREE_ITEM"])
messages = [{"role": "user", "content": item["prompt"]}]
while True:
    with client.messages.stream(model="policy", max_tokens=256, messages=messages, tools=[ADD]) as stream:
        said = stream.get_final_message()
    parts = [part.model_dump(include={"type", "text", "id", "name", "input"}) for part in said.content]
    messages.append({"role": "assistant", "content": parts})
    calls = [part for part in said.content if part.type == "tool_use"]
    if not calls:
        break
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": str(sum(c.input.values()))} for c in calls]
    messages.append({"role": "user", "content": results})
print("".join(part.text for part in said.content if part.type == "text"))
