"""`rolltree train`: train a policy with a recipe."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, make_dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from rolltree.cli.common import (
    at_least,
    at_most,
    console,
    emit,
    first_name,
    grid,
    parse,
    refuse_rest,
    take,
    varying,
)  # fmt: skip
from rolltree.cli.placed import ClusterArguments, asked_task, complete, in_template, placed, with_policy
from rolltree.console import Terminal
from rolltree.control.plan import Control
from rolltree.control.registry import CONTROLS
from rolltree.errors import RolltreeError
from rolltree.policy.hub import trust_code
from rolltree.recipe.compose import Steered
from rolltree.recipe.registry import RECIPES
from rolltree.recipe.swap import Swapped
from rolltree.task.data.flags import DataFlags, folder_name
from rolltree.training.config import LoraKnobs, TrainConfig
from rolltree.visible import visible

if TYPE_CHECKING:
    from rolltree.recipe.recipe import Recipe
    from rolltree.training.start import Result

ABOUT = """Train a policy on a task with a recipe, into a run folder.

  rolltree train grpo --task countdown --out runs/first
  rolltree train dapo --task arithmetic --level 3 --group 16 --lr 2e-4
  rolltree train grpo --task my.jsonl --policy PATH --reward exact
  rolltree train grpo --task grid --out runs/first --resume
  rolltree train treepo --control dars --control.schedule hard
  rolltree train grpo --scheduler areal --threads 1
  rolltree train grpo --kl "0.1, 0 at 50" --clip "0.2->0.1 over 80"
  rolltree train grpo --task grid --cluster local:4
  rolltree train mine.py:MyRecipe --task mine.py:MyTask

The first word is the recipe (rolltree recipes lists them). Its knobs and those of the run are options below. --resume
goes on exactly where a run stopped; --scheduler lets rollouts and training overlap; --cluster puts engines and
verifiers on Ray.

--control says which prompts get how many rollouts, in which arms and rounds, whatever the recipe grows them with:
{controls}. With --control NAME, --help lists its knobs too.
"""


@dataclass(frozen=True)
class TrainArguments(ClusterArguments):
    """What to train on what, and where to write it."""

    control: str = ""
    """Who gets how many rollouts (see above); the recipe's own control when left out."""
    use_credit: str = ""
    """Another credit than the recipe's, with knobs: gae, or "gigpo(omega=0.5)" (rolltree credit lists them)."""
    use_objective: str = ""
    """Another objective than the recipe's, with knobs: cispo, or "clipped(clip_high=0.28)"."""
    use_answers: str = ""
    """Sample several answers at each call, go on with the best by a scorer: "entropy(answers=4)", confidence, verifier,
    "lookahead(rollouts=2)", or a judge as FILE.py:FUNCTION."""
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
    """What samples it: local, vllm, or the address of a vLLM server that takes new weights."""
    out: Path | None = None
    """The run's folder; runs/RECIPE-TASK-SEED when left out."""
    resume: bool = False
    """Go on from the newest checkpoint in --out, exactly."""
    fallback: bool = False
    """With --resume: accept an older checkpoint, or the beginning, when the newest is damaged or gone."""
    lora: int = 0
    """Train low-rank adapters of this rank instead of all weights; 0 = all weights."""
    threads: int | None = None
    """Threads torch may use; its own choice when left out."""
    doctor: int = 10
    """Steps between checks of the run's health (see rolltree doctor); 0 = never."""
    json: bool = False
    """Print the last numbers as JSON and nothing else."""


def run(arguments: Sequence[str]) -> int:
    """Parse by the recipe's knobs, train, say what came out."""
    name, rest = first_name(arguments)
    if name is None:
        if "-h" in rest or "--help" in rest:
            name = "grpo"
        else:
            raise RolltreeError(f"which recipe? rolltree train RECIPE ...; known: {', '.join(RECIPES.names())}")
    made = RECIPES.find(name)
    control = asked_control(rest)
    # Knobs of recipe and run keep their bare names; a control's are prefixed, because it goes with any recipe.
    bare: list[tuple[str, type[Any], str]] = [
        ("arguments", TrainArguments, "What to train"), ("data", DataFlags, "Your own data"),
        ("recipe", made, f"Knobs of {name}"), ("run", TrainConfig, "The run"),
    ]  # fmt: skip
    parts: list[Any] = [
        (n, Annotated[kind, tyro.conf.OmitArgPrefixes], field(default_factory=kind, metadata={"heading": heading}))
        for n, kind, heading in bare
    ]
    if control is not None:
        title = "Knobs of the control"
        parts.append(("control", control, field(default_factory=control, metadata={"heading": title})))
    shape = make_dataclass("TrainArguments", parts, frozen=True)
    about = ABOUT.format(controls=", ".join(CONTROLS.names()))
    rest, texts = varying(rest)
    parsed: Any = parse(shape, complete(rest), f"train {name}", about, prefixes=control is not None)
    return _train(made, control, parsed, texts)


def _train(made: type[Recipe], control: type[Control] | None, parsed: Any, texts: dict[str, str]) -> int:
    # Imported here, because they load torch and --help needs none of it.

    from rolltree.doctor.examination import Monitor
    from rolltree.training.ranks.start import leads
    from rolltree.training.start import train

    asked: TrainArguments = with_policy(parsed.arguments)
    _take(asked)
    config: TrainConfig = parsed.run
    recipe: Any = take(texts, parsed.recipe)
    if control is not None:
        own = {f.name: texts.pop(f"control.{f.name}", getattr(parsed.control, f.name)) for f in fields(parsed.control)}
        recipe = Steered(recipe, asked.control, own)
    config = replace(config, optim=take(texts, config.optim))
    refuse_rest(texts, [f.name for knobs in (parsed.recipe, config.optim) for f in fields(knobs)])
    if asked.lora:
        config = replace(config, lora=LoraKnobs(rank=asked.lora, alpha=2.0 * asked.lora))
    task = asked_task(parsed.data.address(asked.task), asked.level, asked.policy)
    out = asked.out or Path("runs") / f"{folder_name(made.card.name)}-{folder_name(asked.task)}-{config.seed}"
    terminal = Terminal(stderr=True)
    if terminal.is_terminal and not asked.json:  # in a log, what is wrong with the input stands alone
        said = f"{made.card.name} on {asked.task} into {out}: loading {asked.policy}"
        terminal.print(visible(said), highlight=False)
    if asked.use_credit or asked.use_objective or asked.use_answers:
        recipe = Swapped(recipe, asked.use_credit, asked.use_objective, use_answers=asked.use_answers)
    with ExitStack() as stack:
        engine, answering = asked.engine, task
        if asked.cluster and leads():
            # Its first weights are the ones published before the first step, as version 0.
            engine, answering = stack.enter_context(placed(asked, asked.policy, task, engine=engine, version=-1))
        result = train(
            recipe, asked.policy, answering, out=out, config=config, engine=engine, resume=asked.resume,
            fallback=asked.fallback, quiet=asked.json,
            listen=Monitor(out, every=asked.doctor) if asked.doctor else None,
        )  # fmt: skip
    if not leads():
        return 0
    from rolltree.cli.doctor import summary

    found = summary(result.path) if asked.doctor and result.metrics else []
    if asked.json:
        told = None if result.acted is None else result.acted.as_json()
        ends = {"eval": result.last("eval"), "train": result.last("train")}
        emit({"out": str(result.path), "why": result.why, **ends, "acted": told, "findings": found})
    else:
        if found:
            console().print(grid(f"What the doctor says (rolltree doctor {visible(str(result.path))})", found))
        print(visible(closing(result)))
    return 0


def _take(asked: TrainArguments) -> None:
    """Check counts, and put in force what holds for the whole process."""
    at_least(0, doctor=asked.doctor, lora=asked.lora)
    if asked.trust_remote_code:
        trust_code()
    in_template(asked.policy, asked.chat_template)
    if asked.threads is not None:
        import torch  # here, because --help needs none of it

        at_least(1, threads=asked.threads)
        at_most(4096, threads=asked.threads)
        torch.set_num_threads(asked.threads)


def asked_control(arguments: Sequence[str]) -> type[Control] | None:
    """The class of the control that is named among the options; an unknown name is refused with the nearest known."""
    given = [b for a, b in pairwise([*arguments, ""]) if a == "--control"]
    given += [a.removeprefix("--control=") for a in arguments if a.startswith("--control=")]
    if not given:
        return None
    return CONTROLS.find(given[-1])


def closing(result: Result) -> str:
    """Two lines at the end of a run."""
    before = next((line for line in result.metrics if line["kind"] == "eval"), None)
    after = result.last("eval")
    rates = [line.get("eval/pass@1") for line in (before, after) if line]
    # An evaluation whose rollouts all failed measured nothing.
    shown = ["not measured" if rate is None else f"{rate:.1%}" for rate in rates]
    gain = f"pass@1 {' → '.join(shown)} on held-out items; " if len(shown) == 2 else ""
    return f"{gain}ended because {result.why}.\nThe run is in {result.path} (its README says what is where)."
