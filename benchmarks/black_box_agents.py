"""Three black-box agents for the nano tasks: they know their tools, and nothing of who answers them or judges them.

Their tools' data (a knowledge base or a table for each question) is in the folder that BLACK_BOX_DATA names.
"""

import json
import os
import re
import sqlite3
from pathlib import Path

import aiohttp


def data(item):
    return json.loads((Path(os.environ["BLACK_BOX_DATA"]) / item["id"]).read_text())


async def talk(item, tool, ends):
    messages = [{"role": "user", "content": item["prompt"]}]
    async with aiohttp.ClientSession() as http:
        while True:
            asked = {"messages": messages, "stop": ["\n"]}
            async with http.post(item["base_url"] + "/chat/completions", json=asked) as answer:
                said = (await answer.json())["choices"][0]["message"]
            if ends(said["content"]):
                return said["content"]
            messages += [said, {"role": "user", "content": tool(said["content"]) + "\n"}]


async def calculator(item):
    def tool(text):
        call = re.fullmatch(r"(-?\d{1,9})([-+*])(\d{1,9})", text)
        a, b = (int(call[1]), int(call[3])) if call else (0, 0)
        return str({"+": a + b, "-": a - b, "*": a * b}[call[2]]) if call else "bad"

    return await talk(item, tool, re.compile(r"=-?\d{1,12}").fullmatch)


async def lookup(item):
    def tool(text):
        call = re.fullmatch(r"\?([a-z]{1,8})", text)
        facts = data(item).get(call[1]) if call else "bad"
        return facts if isinstance(facts, str) else " ".join(f"{k}:{v}" for k, v in (facts or {"none": 0}).items())

    return await talk(item, lambda text: tool(text).replace("none:0", "none"), re.compile(r"=[a-z]{1,8}").fullmatch)


async def sql(item):
    asked = [""]

    def tool(text):
        asked[0], table = text, data(item)
        try:
            with sqlite3.connect(":memory:") as base:
                base.execute(f"create table {table['table']} ({','.join(table['columns'])})")
                base.executemany(f"insert into {table['table']} values (?,?,?)", table["rows"])
                rows = base.execute(text).fetchmany(20)
        except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
            return f"err {str(error)[:16]}".rstrip()
        cells = (" ".join(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row) for row in rows)
        shown = ",".join(cells) or "none"
        return shown if len(shown) <= 16 else shown[:14] + ".."

    await talk(item, tool, lambda text: text == "ok")
    return asked[0]
