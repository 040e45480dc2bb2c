"""The `openai-agents` SDK over the responses API, with an MCP server as the tool."""

import asyncio
import json
import os
import sys
from pathlib import Path

from agents import Agent, Runner, set_tracing_disabled
from agents.mcp import MCPServerStdio

set_tracing_disabled(True)


async def main():
    item = json.loads(os.environ["ROLLTREE_ITEM"])
    server = {"command": sys.executable, "args": [str(Path(__file__).with_name("mcp_server.py"))]}
    async with MCPServerStdio(params=server, client_session_timeout_seconds=60) as tools:
        agent = Agent(name="adder", instructions="Add with the tool.", model="policy", mcp_servers=[tools])
        print((await Runner.run(agent, item["prompt"])).final_output)


asyncio.run(main())
