"""A black-box agent: it works a sum out with a calculator of its own, and knows nothing of who answers it.

rolltree rollout grpo --task "calculator?fail_rate=0" --agent "python examples/agents/calculator_agent.py"
"""

import json
import os
import re
from urllib.request import Request, urlopen


def ask(messages):
    body = json.dumps({"model": "policy", "messages": messages, "stop": ["\n"]}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urlopen(Request(url, body, {"Content-Type": "application/json"}), timeout=600) as answer:
        return json.load(answer)["choices"][0]["message"]


def calculate(text):
    call = re.fullmatch(r"(-?\d{1,9})([-+*])(\d{1,9})", text)
    if call is None:
        return "bad\n"
    a, b = int(call[1]), int(call[3])
    return f"{ {'+': a + b, '-': a - b, '*': a * b}[call[2]] }\n"


messages = [{"role": "user", "content": json.loads(os.environ["ROLLTREE_ITEM"])["prompt"]}]
while not re.fullmatch(r"=-?\d{1,12}", (said := ask(messages))["content"]):
    messages += [said, {"role": "user", "content": calculate(said["content"])}]
print(said["content"])
