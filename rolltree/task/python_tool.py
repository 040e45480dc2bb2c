"""Mathematical questions from a JSON-lines file, answered with Python as a tool (the setting of ToRL and ReTool).

The policy writes a block between ```` ```python ```` and ```` ``` ````; the block runs in the sandbox, in a process of
its own that knows nothing of earlier blocks, and the environment answers with what it printed. The answer is the last
expression after the last output, compared by value as in `jsonl:PATH`.
"""

from __future__ import annotations

import copyreg
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rolltree.task.data.task import Data
from rolltree.task.items import digest
from rolltree.task.math_judge import judge_math
from rolltree.task.protocol import Item, Reply, Split, Verdict
from rolltree.task.sandbox.box import Box, Ran
from rolltree.task.sandbox.run import run_python, survey

OPEN, CLOSE, OUTPUT = "```python\n", "```\n", "```output\n"
BLOCK = re.compile(r"```python\n(.*)```\n\Z", re.DOTALL)
ASKED = (
    "\nYou may use Python: write a block that starts with ```python and ends with ```, and you will see its output. "
    "Put the final answer in \\boxed{}.\n"
)


@dataclass(frozen=True, slots=True)
class Notebook:
    """Blocks run so far and the last reply; blocks share nothing, so the future depends on no more."""

    calls: int = 0
    reply: str = ""


class PythonTool(Data):
    """The items of a file, with a Python tool in the rollout."""

    def __init__(
        self, path: str, max_tokens: int = 1024, max_turns: int = 4, shown: int = 512, instructions: str = ASKED,
        seconds: float = 5.0, packages: bool = False, without: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """`shown` characters of an output are given to the policy; `instructions` follow every prompt; `seconds`,
        `packages` and `without` are the sandbox's (`rolltree.task.sandbox.box.Box`), which is tried out here."""
        super().__init__(f"jsonl:{path}", reward="math", chat="off", max_tokens=max_tokens, stop=(CLOSE,))
        self.name = f"python:{path}"
        self.max_turns = max_turns
        self.shown = shown
        self.instructions = instructions
        self.box = Box(seconds=seconds, packages=packages, without=frozenset(without))
        self.guarantees = survey(self.box)
        """Guarantee -> what holds it on this machine."""

    @property
    def measures(self) -> frozenset[str]:
        """Whether an answer could be read, and how many blocks were run."""
        return frozenset({"parses", "calls"})

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (PythonTool,), self.__dict__  # pyright: ignore[reportAttributeAccessIssue]

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Those of the file, with the instructions after each prompt."""
        for item in super().items(split, seed):
            yield replace(item, prompt=item.prompt + self.instructions)

    def start(self, item: Item) -> tuple[Notebook, str | None]:
        """Nothing has run."""
        return Notebook(), f"{item.id}/0"

    async def step(self, item: Item, state: Notebook, text: str) -> Reply:
        """Run the block that ends the turn. A block that fails is the policy's to see; a broken sandbox raises."""
        block = BLOCK.search(text[max(text.rfind(OPEN), 0) :])
        if block is None:
            said, failed = "there is no block that starts with ```python\n", True
        else:
            ran = await run_python(block[1], self.box)
            said, failed = self._shown(ran), ran.failed
        state = Notebook(state.calls + 1, f"{OUTPUT}{said}{CLOSE}")
        return Reply(state.reply, state, state_key=f"{item.id}/{state.calls}:{digest(state.reply)}", failed=failed)

    async def verify(self, item: Item, state: Notebook, text: str) -> Verdict:
        """Equality in value of what was said after the last output; `calls` counts the blocks."""
        said = text.rpartition(state.reply)[2] if state.reply else text
        verdict = await judge_math(str(item.answer), said)
        return replace(verdict, parts={**verdict.parts, "calls": float(state.calls)})

    def _shown(self, ran: Ran) -> str:
        """An output with its middle cut out where it is long: a traceback says what is wrong at its end."""
        text = ran.text + (f"\n{ran.note}\n" if ran.note else "")
        if len(text) > self.shown:
            half = max(self.shown // 2 - 2, 1)
            text = f"{text[:half]}\n..\n{text[-half:]}"
        return text if text.endswith("\n") else f"{text}\n" if text else "(no output)\n"
