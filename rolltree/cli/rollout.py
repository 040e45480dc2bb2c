"""`rolltree rollout`: grow rollouts and look at them."""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from rolltree.cli.common import SamplingArguments, at_least, at_most, console, emit, first_name, parse, say_acted
from rolltree.cli.placed import ClusterArguments, asked_task, complete, in_template, placed, with_policy
from rolltree.cli.show import show_prompt, show_tree
from rolltree.control.ledger import Budget, Limits, Spent
from rolltree.engine.protocol import Engine
from rolltree.errors import RolltreeError
from rolltree.knobs.amounts import Tokens
from rolltree.policy.hub import trust_code
from rolltree.recipe.recipe import Recipe
from rolltree.recipe.registry import RECIPES
from rolltree.recipe.swap import Swapped
from rolltree.rollout.underway import all_failed, failures, said_of, told
from rolltree.task.data.flags import DataFlags
from rolltree.task.protocol import Item, Task, about
from rolltree.task.sandbox.held_back import hold_back
from rolltree.tree import Forest
from rolltree.tree.store.atomic import check_writable
from rolltree.tree.store.jsonl import write
from rolltree.tree.store.parquet import save
from rolltree.visible import visible

if TYPE_CHECKING:
    from rolltree.recipe.acted import Acted

ABOUT = """Grow rollouts with a recipe's strategy and show the trees: who wrote what, why it ended, what it was worth.

  rolltree rollout grpo --task countdown --items 2
  rolltree rollout grpo --task grid --group 4 --out forests/grid
  rolltree rollout treepo --engine vllm
  rolltree rollout grpo --task lookup --jsonl nodes.jsonl
  rolltree credit gigpo nodes.jsonl
  rolltree rollout grpo --task countdown --items 64 --cluster local:4
  rolltree rollout mine.py:MyRecipe

--out saves the trees as Parquet, --jsonl in the interchange format that rolltree credit reads. --cluster puts engines
and verifiers on Ray.
"""


@dataclass(frozen=True)
class RolloutArguments(ClusterArguments):
    """What to grow from what."""

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
    speculate: str = "off"
    """Guess tokens ahead and keep those that would have been drawn: off, ngram, suffix, adjacent, heads or a smaller
    model with the same tokens; behind a colon the shape: suffix:6, nano:3x2x1, heads:2+3x4, adjacent:spine, or auto.
    The samples stay the same, up to rounding (docs/howto/speculate.md)."""
    items: int = 2
    """How many prompts."""
    items_from: Literal["train", "test"] = "train"
    """Which split the prompts are from."""
    seed: int = 0
    """Where chance starts; it also decides which prompts come first."""
    decoded: Tokens | None = None
    """Most tokens to sample in all, each prefix counted once (96000, 96k)."""
    use_answers: str = ""
    """Sample several answers at each call, go on with the best by a scorer: "entropy(answers=4)", confidence, verifier,
    "lookahead(rollouts=2)", or a judge as FILE.py:FUNCTION."""
    full_prompt: bool = False
    """Print the whole first prompt, token by token."""
    show: int = 3
    """How many trees to print."""
    out: Path | None = None
    """Save the forest here as Parquet."""
    jsonl: Path | None = None
    """Save the forest here in the interchange format."""
    json: bool = False
    """Print numbers as JSON instead of trees."""


def run(arguments: Sequence[str]) -> int:
    """Grow, show, save."""
    name, rest = first_name(arguments)
    name = name or "grpo"
    made = RECIPES.find(name)
    shape = make_dataclass(
        "RolloutArguments",
        [
            (
                "arguments",
                RolloutArguments,
                field(default_factory=RolloutArguments, metadata={"heading": "What to grow"}),
            ),
            ("sampling", SamplingArguments, field(default_factory=SamplingArguments, metadata={"heading": "Sampling"})),
            ("data", DataFlags, field(default_factory=DataFlags, metadata={"heading": "Your own data"})),
            ("recipe", made, field(default_factory=made, metadata={"heading": f"Knobs of {name}"})),
        ],
        frozen=True,
    )
    return _grow(parse(shape, complete(rest), f"rollout {name}", ABOUT))


def _grow(parsed: Any) -> int:
    # Imported here, because they load torch and --help needs none of it.
    from rolltree.cluster.pool import PoolEngine
    from rolltree.engine.choose import choose_engine
    from rolltree.generate.runner import grow
    from rolltree.policy.device import place
    from rolltree.recipe.acted import acted_on, by_prompt
    from rolltree.recipe.check import check
    from rolltree.recipe.compose import compose
    from rolltree.recipe.need import lacking
    from rolltree.rollout.widths import check_batch
    from rolltree.training.peers import frozen_peers

    asked: RolloutArguments = with_policy(parsed.arguments)
    if asked.trust_remote_code:
        trust_code()
    in_template(asked.policy, asked.chat_template)
    _check(asked)
    parsed.sampling.check()
    task = asked_task(parsed.data.address(asked.task), asked.level, asked.policy)
    recipe = parsed.recipe
    if asked.use_answers:
        recipe = cast(Recipe, Swapped(recipe, use_answers=asked.use_answers))
    parts = compose(recipe)
    check_batch(asked.items, parts.strategy)
    for line in lacking(recipe.card.name, recipe.card.needs, task):
        print(f"rolltree: {visible(line)}", file=sys.stderr)
    items = list(itertools.islice(task.items(asked.items_from, asked.seed), asked.items))
    draw, placement = parsed.sampling.drawn(), place(asked.device, asked.dtype)
    began = time.monotonic()

    async def work(pool: PoolEngine | None, task: Task) -> _Grown:
        if pool is not None and asked.speculate != "off":
            raise RolltreeError(f"--speculate {asked.speculate} is for --engine local in one process; drop --cluster")
        engine = pool or await choose_engine(
            asked.engine, asked.policy, sampling=draw, placement=placement, speculate=asked.speculate
        )
        peers: dict[str, Engine] = {}
        try:
            check(parts, engine, task)
            peers |= frozen_peers(parts.peers, asked.policy)
            # Its clock runs from here: what it took to start an engine is said apart.
            budget = Budget(Limits(decoded=asked.decoded), clock=time.monotonic)
            start = time.monotonic() - began
            forest = await grow(
                parts.strategy, engine, task, items, seed=asked.seed, budget=budget, sampling=draw, peers=peers,
                max_tokens=parsed.sampling.max_tokens,
            )  # fmt: skip
            grown = _Grown(forest, engine, budget.spent, start)
        finally:
            for each in (engine, *peers.values()):
                await each.close()
        return grown

    with ExitStack() as stack:
        pool, answering = None, task
        if asked.cluster:
            pool, answering = stack.enter_context(placed(asked, asked.policy, task, engine=asked.engine))
        grown = asyncio.run(work(pool, answering))
    return _shown(asked, task, items[0], grown, acted_on(recipe.card, by_prompt(grown.forest)))


@dataclass(frozen=True, slots=True)
class _Grown:
    """What was grown, and what it cost."""

    forest: Forest
    engine: Engine
    spent: Spent
    start: float
    """Seconds until the engine stood."""


def _shown(asked: RolloutArguments, task: Task, first: Item, grown: _Grown, acted: Acted | None) -> int:
    """Save and print what was grown; the exit code is 1 where every rollout failed."""
    from rolltree.cluster.pool import PoolEngine
    from rolltree.generate.roles import is_side
    from rolltree.training.prompt import prompt_of

    forest, engine, spent = grown.forest, grown.engine, grown.spent
    if asked.out is not None:
        save(forest, asked.out, states="drop")
    if asked.jsonl is not None:
        write(forest, asked.jsonl, states="drop")
    main = [tree for tree in forest if not is_side(tree)]
    leaves = [leaf for tree in main for leaf in tree.leaves()]
    rewards = [leaf.scores["reward"] for leaf in leaves if "reward" in leaf.scores]
    numbers = {
        "trees": len(main),
        "leaves": len(leaves),
        "failed": sum(leaf.status == "failed" for leaf in leaves),
        "decoded": spent.decoded,
        "prefilled": spent.prefilled,
        "mean_reward": sum(rewards) / len(rewards) if rewards else None,
        "seconds": round(spent.seconds, 3),
        "engine_start_seconds": round(grown.start, 3),
    }
    if len(forest) > len(main):
        numbers |= {"side_trees": len(forest) - len(main)}
        numbers |= {f"tokens_of_{role}": tokens for role, tokens in spent.by_role.items()}
    if failed := said_of(forest):
        print(f"rolltree: {visible(failed)}", file=sys.stderr)
    ended = 1 if all_failed(forest) else 0
    if isinstance(engine, PoolEngine):
        numbers |= {"engines_lost": engine.health.lost, "reissued": engine.health.reissued}
    if asked.json:
        numbers |= {"acted": acted.as_json()} if acted is not None else {}
        emit({**numbers, "why": told(*failures(forest))} if failed else numbers)
        return ended
    out = console()
    for line in about(task).splitlines():
        out.print(line, style="dim", highlight=False, markup=False)
    show_prompt(prompt_of(first, engine.codec), out, full=asked.full_prompt)
    out.print()
    for tree in main[: asked.show]:
        show_tree(tree, engine.codec.decode, out)
        out.print()
    out.print("  ".join(f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in numbers.items()))
    say_acted(out, acted)
    return ended


def _check(asked: RolloutArguments) -> None:
    """Refuse before anything is sampled what could not be sampled, shown or saved."""
    at_least(1, items=asked.items)
    at_most(1_000_000, items=asked.items)
    at_least(0, show=asked.show)
    if asked.decoded is not None:
        at_least(1, decoded=asked.decoded)
    for option, path in (("--out", asked.out), ("--jsonl", asked.jsonl)):
        if path is not None and path.exists():
            raise RolltreeError(f"{option} {path} exists and is kept as it is; give another name")
        if path is not None:
            hold_back(path)
            check_writable(path, option)
