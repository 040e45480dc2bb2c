"""`mini-swe-agent`: a coding agent that works in a shell, in a folder of its own."""

import json
import os
import tempfile
from pathlib import Path

os.environ["MSWEA_SILENT_STARTUP"] = "1"
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

item = json.loads(os.environ["ROLLTREE_ITEM"])
with tempfile.TemporaryDirectory() as folder:
    model = LitellmModel(model_name="openai/policy", cost_tracking="ignore_errors")
    agent = DefaultAgent(
        model, LocalEnvironment(cwd=folder), system_template="Work in the shell.", instance_template="{{task}}",
        step_limit=4, cost_limit=0,
    )  # fmt: skip
    agent.run(item["prompt"])
    written = Path(folder) / "answer.txt"
    print(written.read_text().strip() if written.exists() else "")
