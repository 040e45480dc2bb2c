"""`rolltree solve`: answer items with a frozen policy and any method."""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from rolltree.cli.common import SamplingArguments, at_least, at_most, console, emit, first_name, parse, say_acted
from rolltree.cli.placed import asked_task, in_template, with_policy
from rolltree.console import Terminal
from rolltree.engine.protocol import Engine, Sampling
from rolltree.errors import RolltreeError
from rolltree.knobs.amounts import Tokens
from rolltree.recipe.registry import RECIPES
from rolltree.task.data.flags import DataFlags
from rolltree.visible import visible

if TYPE_CHECKING:
    from rolltree.recipe.acted import Acted
    from rolltree.recipe.recipe import Card, Counter, Parts
    from rolltree.rollout.answers import AnswerFolder
    from rolltree.rollout.solve import SolvedItem
    from rolltree.task.protocol import Task
    from rolltree.tree import Forest

ABOUT = """Answer questions with a frozen policy: nothing is trained, any recipe is a
method, tokens are the budget.

  rolltree solve best_of_n --task countdown --items 32
  rolltree solve mcts --task countdown --item-tokens 600 --out runs/mcts
  rolltree solve ets --task arithmetic --select beam --out runs/beam
  rolltree solve best_of_n --task mine.jsonl --policy smollm2-135m --engine vllm

--item-tokens is what an item may cost: all tokens that are sampled for it, by every role, each prefix once. Answers
are JSON lines: on stdout, or with --out in a folder, whose run goes on where it was interrupted when the same command
is given again. The report says how often the answer was right and how often any rollout was (where that can be known),
and what it cost. To hold methods against one another at equal tokens: rolltree compare METHOD METHOD --frozen.
"""


@dataclass(frozen=True)
class SolveArguments:
    """What to answer with what."""

    task: str = "countdown"
    """A task's name (rolltree tasks), or your own data: FILE.jsonl, FILE.parquet, hf:NAME:SPLIT."""
    level: int | None = None
    """Its difficulty; the task's default when left out."""
    policy: str = ""
    """A model's name (rolltree models), a folder, or a hub id; nano when left out, or the task's own (digits)."""
    trust_remote_code: bool = False
    """Run the Python code that the model's folder brings, if it brings any; read it before."""
    chat_template: Path | None = None
    """A Jinja file with the chat template to use in place of the model's own."""
    engine: str = "local"
    """What samples it: local, vllm, or a server's address such as http://127.0.0.1:8000."""
    device: str = "auto"
    """Where a local engine computes: auto (a GPU where there is one), cpu, cuda or cuda:N."""
    dtype: str = "auto"
    """In which type: auto (bfloat16 on a GPU, float32 on a processor), float32 or bfloat16."""
    items: int = 16
    """How many items."""
    items_from: Literal["train", "test"] = "test"
    """Which split they are from."""
    seed: int = 0
    """Where chance starts; it also decides which items come first."""
    role: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Let another model speak as a role: --role judge=MODEL, once for each role; a name, a folder or a hub id. A role
    that is not named speaks with the policy."""
    item_tokens: Tokens | None = None
    """Most tokens to sample for an item, over all roles; as many as the method wants when left out."""
    run_tokens: Tokens | None = None
    """Most tokens to sample in all; items that are not begun by then stay unanswered."""
    at_once: int = 16
    """Items that are answered side by side; no answer depends on it."""
    out: Path | None = None
    """Folder for answers.jsonl, report.json and the trees; the same command goes on where it was interrupted."""
    trees: bool = True
    """Keep the trees in --out, for rolltree view."""
    json: bool = False
    """Print the report as JSON instead of answers."""


def run(arguments: Sequence[str]) -> int:
    """Answer, write down, report."""
    name, rest = first_name(arguments)
    if name is None and not {"-h", "--help"} & set(rest):
        raise RolltreeError("which method? rolltree solve best_of_n --task countdown; rolltree recipes lists them")
    if name == "majority":
        raise RolltreeError("majority is how an answer is chosen, no method; say solve best_of_n --final majority")
    name = name or "best_of_n"
    made = RECIPES.find(name)
    shape = make_dataclass(
        "SolveCommand",
        [
            ("asked", SolveArguments, field(default_factory=SolveArguments, metadata={"heading": "What to answer"})),
            ("sampling", SamplingArguments, field(default_factory=SamplingArguments, metadata={"heading": "Sampling"})),
            ("data", DataFlags, field(default_factory=DataFlags, metadata={"heading": "Your own data"})),
            ("recipe", made, field(default_factory=made, metadata={"heading": f"Knobs of {name}"})),
        ],
        frozen=True,
    )  # fmt: skip
    return _solve(name, parse(shape, rest, f"solve {name}", ABOUT))


def _solve(name: str, parsed: Any) -> int:
    # Imported here, because they load torch and --help needs none of it.
    from rolltree.control.ledger import Budget, Limits
    from rolltree.generate.answers import check_item
    from rolltree.policy.hub import trust_code
    from rolltree.recipe.check import check
    from rolltree.recipe.compose import compose
    from rolltree.rollout.answers import AnswerFolder
    from rolltree.rollout.solve import report, solve

    asked: SolveArguments = with_policy(parsed.asked)
    _check(asked)
    drawn: SamplingArguments = parsed.sampling
    drawn.check()
    if asked.trust_remote_code:
        trust_code()
    in_template(asked.policy, asked.chat_template)
    speakers = roles_of(asked.role)
    address = parsed.data.address(asked.task)
    task = asked_task(address, asked.level, asked.policy)
    parts = compose(parsed.recipe)
    items = list(enumerate(itertools.islice(task.items(asked.items_from, asked.seed), asked.items)))
    told = {
        "method": name, "knobs": asdict(parsed.recipe), "task": address, "level": task.level, "model": asked.policy,
        "engine": asked.engine, "seed": asked.seed, "items_from": asked.items_from, "items": asked.items,
        "item_tokens": asked.item_tokens, **asdict(drawn),
    }  # fmt: skip
    if speakers:
        told["roles"] = speakers
    folder = None if asked.out is None else AnswerFolder(asked.out, told, trees=asked.trees)
    known = {} if folder is None else {a.index: a for a in folder.answers}
    if known:
        print(f"{len(known)} of {len(items)} items are answered already; going on", file=sys.stderr)
    answers, budget = list(known.values()), Budget(Limits(decoded=asked.run_tokens))

    card = parsed.recipe.card
    _say_lacking(card, task)
    heard = _Heard(asked, folder, len(items), answers, speakers, card.counter)

    async def work() -> None:
        draw = drawn.drawn()
        engine, peers, roles = await _engines(asked, parts, speakers, draw)
        try:
            check(parts, engine, task)
            for _, item in items:
                check_item(item, engine, peers, answered=False)
            await solve(
                parts.strategy, engine, task, [(i, item) for i, item in items if i not in known], seed=asked.seed,
                tokens=asked.item_tokens, total=budget, sampling=draw, peers=peers, roles=roles, at_once=asked.at_once,
                max_tokens=drawn.max_tokens, done=heard.add,
            )  # fmt: skip
        finally:
            for each in (engine, *peers.values(), *roles.values()):
                await each.close()

    if len(known) < len(items):
        asyncio.run(work())
        if silent := sorted(set(speakers) - heard.spoke):
            print(f"{name} never asked {visible(', '.join(silent))}: that --role changed nothing", file=sys.stderr)
    answers.sort(key=lambda a: a.index)
    numbers = report(answers, len(items), budget.spent.by_role)
    return _ended(asked, numbers, answers, folder, heard.found(card.name))


async def _engines(
    asked: SolveArguments, parts: Parts, speakers: Mapping[str, str], draw: Sampling
) -> tuple[Engine, dict[str, Engine], dict[str, Engine]]:
    """The policy's engine, those of the recipe's peers, and those of the roles that were given a model."""
    from rolltree.engine.choose import choose_engine, local_engine
    from rolltree.policy.device import place
    from rolltree.training.peers import frozen_peers

    where = place(asked.device, asked.dtype)
    engine = await choose_engine(asked.engine, asked.policy, sampling=draw, placement=where)
    peers, roles = dict[str, Engine](), dict[str, Engine]()
    try:
        others = {name: peer for name, peer in parts.peers.items() if name not in speakers}
        peers |= frozen_peers(others, asked.policy)
        for role, model in speakers.items():
            # A peer writes in the policy's own trees, and is checked to have its tokens.
            mine = peers if role in parts.peers else roles
            mine[role] = local_engine(model, device=where.device, dtype=where.dtype)
    except BaseException:
        for each in (engine, *peers.values(), *roles.values()):
            await each.close()
        raise
    return engine, peers, roles


@dataclass
class _Heard:
    """Answers as they come in, and which roles have spoken."""

    asked: SolveArguments
    folder: AnswerFolder | None
    items: int
    answers: list[SolvedItem]
    speakers: Mapping[str, str]
    counter: Counter | None = None
    spoke: set[str] = field(default_factory=set[str])
    values: list[float | None] = field(default_factory=list[float | None])
    """Of the recipe's counter, by item; empty where rollouts alone cannot tell it."""

    def add(self, answer: SolvedItem, forest: Forest) -> None:
        """Keep it, write it down or print it."""
        from rolltree.recipe.acted import told_by_rollouts, value_on

        self.answers.append(answer)
        if self.counter is not None and told_by_rollouts(self.counter):
            self.values.append(value_on(self.counter, forest))
        self.spoke |= {node.actor for tree in forest for node in tree if node.actor in self.speakers}
        self.spoke |= {str(tree.notes.get("role")) for tree in forest}
        if self.folder is not None:
            self.folder.add(answer, forest)
        elif not self.asked.json:
            print(json.dumps(asdict(answer)), flush=True)
        _progress(self.answers, self.items)

    def found(self, name: str) -> Acted | None:
        """Whether the method acted, by the items that were answered now."""
        from rolltree.recipe.acted import acted

        return None if self.counter is None else acted(name, self.counter, self.values, "prompts")


def _say_lacking(card: Card, task: Task) -> None:
    """What the method needs of its task, where it is not there."""
    from rolltree.recipe.need import lacking

    for line in lacking(card.name, card.needs, task):
        print(f"rolltree: {visible(line)}", file=sys.stderr)


def _ended(
    asked: SolveArguments, numbers: Mapping[str, Any], answers: Sequence[SolvedItem], folder: AnswerFolder | None,
    acted: Acted | None,
) -> int:  # fmt: skip
    """Write down and say what came out, and whether the method acted."""
    stored = {**numbers, **({} if acted is None else {"acted": acted.as_json()})}
    if folder is not None:
        folder.close(stored)
    code = _said(asked, stored if asked.json else numbers, answers)
    if not asked.json:
        say_acted(Terminal(stderr=True) if asked.out is None else console(), acted)
    return code


def roles_of(given: Sequence[str]) -> dict[str, str]:
    """Models by the role they speak as, from ROLE=MODEL."""
    found: dict[str, str] = {}
    for text in given:
        role, sign, model = text.partition("=")
        if not (role and sign and model):
            raise RolltreeError(f"--role {text!r} names no role and model; write it as --role judge=MODEL")
        if role in found:
            raise RolltreeError(f"--role gives {role!r} two models, {found[role]!r} and {model!r}; give it one")
        found[role] = model
    return found


def _said(asked: SolveArguments, numbers: Mapping[str, Any], answers: Sequence[SolvedItem]) -> int:
    """Print the report; the exit code is 1 where every rollout failed or its tree crashed."""
    if asked.json:
        emit(numbers)
    else:
        shown = {k: v for k, v in numbers.items() if v is not None and v != {} and not (type(v) is int and v == 0)}
        said = "  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in shown.items())
        # Answers went to stdout, and the report must not stand among them.
        print(said, file=sys.stderr if asked.out is None else sys.stdout)
    from rolltree.rollout.solve import said_of_answers

    if said := said_of_answers(answers):
        print(f"rolltree: {visible(said)}", file=sys.stderr)
    return 1 if answers and all(a.lost for a in answers) else 0


def _progress(answers: Sequence[Any], asked: int) -> None:
    """One line that replaces itself, where somebody is watching."""
    if not sys.stderr.isatty():
        return
    judged = [a.score for a in answers if a.score is not None]
    right = f", {100 * sum(judged) / len(judged):.0f} % right" if judged else ""
    tokens = sum(a.decoded for a in answers)
    end = "\n" if len(answers) == asked else ""
    print(f"\r{len(answers)} of {asked} items, {tokens:,} tokens{right}   ", end=end, file=sys.stderr, flush=True)


def _check(asked: SolveArguments) -> None:
    """Refuse before anything is sampled what could not be."""
    at_least(1, items=asked.items, at_once=asked.at_once)
    at_most(1_000_000, items=asked.items, at_once=asked.at_once)
    for option, value in (("--item-tokens", asked.item_tokens), ("--run-tokens", asked.run_tokens)):
        if value is not None and value < 1:
            raise RolltreeError(f"{option} {value} buys no answer; give a whole number of at least 1")
