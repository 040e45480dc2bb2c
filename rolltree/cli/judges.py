"""`rolltree judges`: how often a judge tells right answers from ones with planted errors."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Literal

from rolltree.cli.common import at_least, console, emit, grid, parse

if TYPE_CHECKING:
    from rolltree.compare.judges import JudgeTable
    from rolltree.generate.judge.protocol import Judge

ABOUT = """Say how often a judge tells right answers from copies with one planted error, kind by kind.

  rolltree judges --task arithmetic             by the likelihood of the answer
  rolltree judges --judge listed                ... after both have been listed
  rolltree judges --judge letter                ... of the letter of its place
  rolltree judges --judge graded --ask '{prompt}{entry} ok? ' --options yes,no

Small models choose letters by their place, not by what stands there.

Pairs are read in both orders; a verdict that does not survive swapping is an abstention. "first" is the share of
readings that prefer what is read first: one half without a bias for the place.
"""
ASKS = {
    "likelihood": "{prompt}",
    "listed": "{prompt}\n{entries}{prompt}",
    "letter": "{prompt}\n{entries}",
    "graded": "{prompt}{entry}\n",
    "written": "{prompt}\n{entries}",
}
"""What is asked, where nothing else is said."""


@dataclass(frozen=True)
class JudgesArguments:
    """Who judges what."""

    task: str = "arithmetic"
    """A task that is answered in one go and can answer its own items."""
    level: int | None = None
    """Its difficulty; the task's default when left out."""
    policy: str = "nano"
    """The judge's model: a name, a folder or a hub id."""
    engine: str = "local"
    """What runs it: local, vllm, or a server's address."""
    judge: Literal["likelihood", "listed", "letter", "graded", "written"] = "likelihood"
    """By the likelihood of an answer's text (alone, or after a list of all), of a letter, of the first of some options
    against the others, or by what it writes."""
    ask: str = ""
    """What it is asked: {prompt}, {entries} and {entry} are filled in; a default for each kind when left out."""
    entry: str = ""
    """How an answer stands in {entries}: {text}, {letter} and {word} are filled in."""
    options: str = "y,n"
    """Of a graded judge: the first is the good one."""
    words: str = "A,B,C,D"
    """Of a written or a letter judge: how places are called."""
    delimiter: str = ","
    """What ends a step, for errors in the order of steps."""
    items: int = 40
    """How many right answers."""
    seed: int = 0
    json: bool = False
    """Print one JSON document and nothing else."""


def run(arguments: Sequence[str]) -> int:
    """Plant, ask, print."""
    asked = parse(JudgesArguments, arguments, "judges", ABOUT)
    at_least(2, items=asked.items)
    # They load torch, which --help does not need.
    from rolltree.compare.judges import judge_table
    from rolltree.engine.choose import choose_engine
    from rolltree.task.protocol import spoken_by
    from rolltree.task.registry import load_task

    judge = made(asked)
    task = load_task(asked.task) if asked.level is None else load_task(asked.task, level=asked.level)

    async def work() -> JudgeTable:
        engine = await choose_engine(asked.engine, asked.policy)
        try:
            spoken = spoken_by(task, engine.codec)
            items = list(islice(spoken.items("test", asked.seed), asked.items))
            return await judge_table(judge, engine, spoken, items, seed=asked.seed, delimiter=asked.delimiter)
        finally:
            await engine.close()

    found = asyncio.run(work())
    if asked.json:
        emit(asdict(found) | {"yes_bias": found.formats.yes_bias})
    else:
        _show(found)
    return 0


def made(asked: JudgesArguments) -> Judge:
    """The judge that these arguments describe."""
    from rolltree.generate.judge.engine_judges import Likelihood, WrittenJudge

    ask, words = asked.ask or ASKS[asked.judge], tuple(asked.words.split(","))
    if asked.judge == "written":
        return WrittenJudge(ask, words, entry=asked.entry or "{word}) {text}\n")
    if asked.judge == "graded":
        return Likelihood(ask, options=tuple(asked.options.split(",")))
    if asked.judge == "letter":
        return Likelihood(ask, asked.entry or "{letter}) {text}\n", letters="".join(words))
    return Likelihood(ask, asked.entry or "{text}\n")


def _show(found: JudgeTable) -> None:
    out = console()
    rows = [
        {"planted": row.kind, "pairs": row.pairs.questions, "named right": f"{row.right.value:.0%}",
         "95 % interval": f"{row.right.low:.0%} to {row.right.high:.0%}", "abstained": f"{row.pairs.abstained:.0%}",
         "first": f"{row.pairs.first:.0%}", "graded alone (AUC)": row.graded} for row in found.rows
    ]  # fmt: skip
    out.print(grid(found.judge, rows))
    failed = sum(row.pairs.failed for row in found.rows)
    out.print(f"one of four: {found.four.value:.0%} ({found.four.low:.0%} to {found.four.high:.0%}); chance is 25 %")
    forms = found.formats
    out.print(f"yes to {forms.yes_right.value:.0%} of right answers and {forms.yes_spoiled.value:.0%} of spoiled ones, "
              f"bias {forms.yes_bias:+.2f} (where grades are chances)")  # fmt: skip
    out.print(f"under another item's question it names {forms.exchanged.value:.0%} (a coin 25 %); asked openly, its "
              f"model is right on {forms.open.value:.0%}")  # fmt: skip
    out.print(f"{found.spent.judge_calls} judge calls, {failed} questions unanswered, "
              f"{found.spent.decoded + found.spent.prefilled} tokens")  # fmt: skip
