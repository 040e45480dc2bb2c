"""`rolltree serve`: answer programs that speak OpenAI or Anthropic, and keep what they do as trees."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from rolltree.cli.common import at_least, parse
from rolltree.cli.placed import ClusterArguments, asked_task, complete, in_template, placed
from rolltree.errors import RolltreeError
from rolltree.gateway.choosing import AnswerChoice
from rolltree.gateway.gateway import Gateway, GatewayBounds
from rolltree.gateway.tree_folder import TreeFolder
from rolltree.knobs.amounts import Tokens
from rolltree.origins import is_loopback
from rolltree.policy.hub import trust_code
from rolltree.recipe.compose import compose
from rolltree.recipe.registry import load_recipe
from rolltree.recipe.swap import named, scored_answers
from rolltree.training.lock import FolderLock
from rolltree.tree import Forest

if TYPE_CHECKING:
    from rolltree.cluster.pool import PoolEngine
    from rolltree.recipe.recipe import Parts

ABOUT = """Answer programs that speak OpenAI or Anthropic, and keep what they do as trees of exact tokens.

  rolltree serve --policy nano
  rolltree serve --policy smollm2 --port 8080 --out forests/agents
  rolltree serve --engine vllm --task my.jsonl
  rolltree serve --strategy "best_of_n(n=16)" --strategy-tokens 4000
  rolltree serve --use-answers "entropy(answers=4)"
  rolltree serve --host 0.0.0.0 --token SECRET

A program is pointed at http://127.0.0.1:8080/s/NAME/v1, where NAME is its session: one rollout of one item. Its end
and reward are sent to /s/NAME/end and /s/NAME/reward, and are answered once the session is written to --out. Ctrl-C
ends the server.

With --strategy each call is answered by a search: a recipe grows a tree on the prompt and hands over its best path.
"""

ENGINE_SECONDS = 2.0
"""Seconds that the engine has to end its step once everything is written."""


@dataclass(frozen=True)
class ServeArguments(ClusterArguments):
    """What answers, where, and within which bounds."""

    policy: str = "nano"
    """A model's name (rolltree models), a folder, or a hub id."""
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
    strategy: str = ""
    """Answer each call by this recipe's search (rolltree recipes), with knobs in brackets: "best_of_n(n=16)"."""
    strategy_tokens: Tokens | None = None
    """Most tokens that a search may sample for one answer; as many as the recipe wants when left out."""
    searches: Path | None = None
    """Save the trees of the searches in this folder as Parquet, each with its session's end."""
    task: str = ""
    """A task whose verifier judges final answers: a name (rolltree tasks), FILE.jsonl, FILE.parquet, hf:NAME:SPLIT."""
    level: int | None = None
    """Its difficulty; the task's default when left out."""
    items: int = 1000
    """How many training items of the task sessions may name."""
    seed: int = 0
    """Which items of the task come first."""
    use_answers: str = ""
    """Sample several answers to each call and hand over the best by a scorer, the others stay in the tree:
    confidence, entropy, verifier, or a judge as FILE.py:FUNCTION, such as entropy(answers=4)."""
    host: str = "127.0.0.1"
    """Where to listen; anything but loopback needs a token."""
    port: int = 8080
    """Which port; 0 takes a free one."""
    token: str = ""
    """What clients show as their key; made up and printed where one is needed and none is given."""
    served_model_name: tuple[str, ...] = ()
    """More names that clients may ask for the policy by, beside its own; "*" takes any."""
    ignore_fields: tuple[str, ...] = ()
    """Fields of calls that are taken for not sent, where one that is not served would be refused: tool_choice."""
    max_tokens: Tokens = 1024
    """Tokens of an answer where the client names no limit."""
    concurrent: int = 256
    """Calls that are sampled at once; others wait."""
    call_seconds: float = 600.0
    """A call that takes longer is stopped."""
    idle_seconds: float = 1800.0
    """A session that is silent for longer has failed."""
    session_calls: int = 1000
    """Most calls of one session."""
    session_tokens: Tokens = 1_000_000
    """Most sampled tokens of one session."""
    out: Path | None = None
    """Save the sessions in this folder as Parquet, each as it ends; a folder of an earlier server is gone on with."""


def run(arguments: Sequence[str]) -> int:
    """Serve until interrupted, then save."""
    asked = parse(ServeArguments, complete(arguments), "serve", ABOUT)
    at_least(1, items=asked.items, max_tokens=asked.max_tokens, concurrent=asked.concurrent)
    at_least(1, session_calls=asked.session_calls, session_tokens=asked.session_tokens)
    at_least(0, port=asked.port)
    parts = _strategy(asked)
    if asked.trust_remote_code:
        trust_code()
    in_template(asked.policy, asked.chat_template)
    with ExitStack() as stack:
        about = {"policy": asked.policy, "task": asked.task}
        out = _folder("--out", asked.out, {"holds": "sessions", **about}, stack)
        searches = _folder("--searches", asked.searches, {"holds": "searches", **about}, stack)
        pool = None
        if asked.cluster:
            task = asked_task(asked.task or "countdown", asked.level, asked.policy)
            pool, _ = stack.enter_context(placed(asked, asked.policy, task, engine=asked.engine))
        return asyncio.run(_serve(asked, pool, parts, out, searches))


def _folder(option: str, path: Path | None, about: dict[str, str], stack: ExitStack) -> TreeFolder | None:
    """The folder of an option, held by this process; refused before anything is served where it cannot be written."""
    if path is None:
        return None
    folder = TreeFolder(path, about, option)
    lock = FolderLock(path)

    def release() -> None:
        with suppress(OSError):  # the folder may be gone by then, which was said
            lock.release()

    stack.callback(release)
    return folder


def _strategy(asked: ServeArguments) -> Parts | None:
    """The recipe that answers calls; options that would do nothing without one are refused."""
    if asked.strategy:
        if asked.use_answers:
            raise RolltreeError("--strategy and --use-answers both choose what is handed over; give one of them")
        if asked.strategy_tokens is not None:
            at_least(1, strategy_tokens=asked.strategy_tokens)
        name, knobs = named(asked.strategy)
        return compose(load_recipe(name, **knobs))
    for option, value in (("--strategy-tokens", asked.strategy_tokens), ("--searches", asked.searches)):
        if value is not None:
            raise RolltreeError(f"{option} {value} does nothing without --strategy; name a recipe that searches")
    return None


async def _serve(
    asked: ServeArguments, pool: PoolEngine | None, parts: Parts | None, out: TreeFolder | None,
    searches: TreeFolder | None,
) -> int:  # fmt: skip
    from rolltree.engine.choose import choose_engine
    from rolltree.gateway.server import serving
    from rolltree.policy.device import place

    engine = pool or await choose_engine(asked.engine, asked.policy, placement=place(asked.device, asked.dtype))
    if parts is not None:
        from rolltree.generate.searched import PromptTask, SearchedEngine
        from rolltree.recipe.check import check
        from rolltree.training.peers import frozen_peers

        check(parts, engine, PromptTask())

        numbers = itertools.count()

        def keep(grown: Forest) -> None:
            if searches is not None:
                for tree in grown:
                    tree.id = f"{tree.id}/{next(numbers)}"  # a prompt may be asked again with the same seed
                    searches.changed(tree)

        engine = SearchedEngine(
            engine, parts.strategy, asked.strategy_tokens, asked.seed, frozen_peers(parts.peers, asked.policy), keep
        )
    bounds = GatewayBounds(
        concurrent=asked.concurrent, call_seconds=asked.call_seconds, idle_seconds=asked.idle_seconds,
        calls=asked.session_calls, tokens=asked.session_tokens, max_tokens=asked.max_tokens,
    )  # fmt: skip
    task = asked_task(asked.task, asked.level, asked.policy) if asked.task else None
    choice = AnswerChoice(*scored_answers(asked.use_answers), task) if asked.use_answers else None
    gateway = Gateway(engine, asked.policy, task, bounds, choice, out=out, searches=searches)
    gateway.aliases, gateway.ignored = asked.served_model_name, frozenset(asked.ignore_fields)
    if task is not None:
        gateway.items.update({item.id: item for item in itertools.islice(task.items("train", asked.seed), asked.items)})
    token = asked.token or ("" if is_loopback(asked.host) else secrets.token_urlsafe(24))
    try:
        async with serving(gateway, asked.host, asked.port, token) as (address, _):
            stopped = _when_told()
            print(f"{asked.policy} answers at {address}/s/NAME/v1 (one session for each NAME); Ctrl-C ends", flush=True)
            if token and not asked.token:
                print(f"Clients show this key: {token}", flush=True)
            await stopped.wait()
        code = _said(gateway)
        if not asked.cluster and asked.engine != "vllm":  # these have processes of their own, which must end first
            _end_after(ENGINE_SECONDS, code)
    finally:
        await engine.close()
    return code


def _when_told() -> asyncio.Event:
    """Set by a signal that ends the server. A second one ends it at once, as the system would."""
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    signs = [sign for sign in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if _heard(sign)]

    def hear(number: int, frame: FrameType | None) -> None:
        for sign in signs:
            signal.signal(sign, signal.SIG_DFL)
        loop.call_soon_threadsafe(stopped.set)

    for sign in signs:
        signal.signal(sign, hear)
    return stopped


def _heard(sign: signal.Signals) -> bool:
    """Whether a signal ends the server: SIGHUP does unless somebody chose to ignore it, as nohup does."""
    return sign != signal.SIGHUP or signal.getsignal(sign) is not signal.SIG_IGN


def _said(gateway: Gateway) -> int:
    """Print where everything is; the exit code is 1 where something stands nowhere."""
    code = 0
    for folder, what in ((gateway.out, f"{len(gateway.sessions)} sessions"), (gateway.searches, "the searches")):
        if folder is not None:
            where = f"{folder.folder} and {folder.elsewhere}" if folder.elsewhere is not None else f"{folder.folder}"
            print(f"{what} are in {where}", flush=True)
            if folder.unsaved:
                print(
                    f"rolltree: {folder.unsaved} trees could not be written and are lost", file=sys.stderr, flush=True
                )
                code = 1
    return code


def _end_after(seconds: float, code: int) -> None:
    """End the program where an engine is in the middle of a long step; everything is written by now."""
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()
