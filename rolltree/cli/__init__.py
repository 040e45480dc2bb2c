"""The command line: one module per verb, imported only when its verb is used."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from rolltree.cli.signals import told_to_end
from rolltree.errors import FULL, RolltreeError, refused_write, unknown
from rolltree.visible import visible

VERBS: dict[str, str] = {
    "demo": "train the embedded policy with two recipes and compare them",
    "recipes": "list the recipes, or describe one with its knobs",
    "tasks": "list the tasks, describe one, or show items of it",
    "models": "list the models, or get one",
    "rollout": "grow rollouts with a recipe and look at them",
    "solve": "answer items with a frozen policy and any method",
    "train": "train a policy with a recipe",
    "serve": "answer agents that speak OpenAI, and keep what they do as trees",
    "compare": "compare recipes at an equal budget, with intervals and a verdict",
    "evidence": "run, check or list the evidence of recipes",
    "budget": "say where a run's tokens went, by difficulty and by prompt",
    "card": "state how a run's rollouts were made",
    "doctor": "say what is wrong with a run's rollouts, and what to do",
    "decisive": "rank the tokens that decided, by the change in success they made",
    "whatif": "sample further continuations from a place in a saved tree",
    "modes": "follow one prompt over training: branches that appear and die",
    "view": "look at runs, trees and tokens in the browser",
    "judges": "say how often a judge sees errors that were planted",
    "labels": "turn step values into rows for TRL's trainers, or a step head",
    "credit": "compute advantages for a forest written by any program",
    "bench": "measure speed as ratios on this machine",
}
"""Each verb is the module `rolltree.cli.VERB` with `run(arguments) -> exit code`."""

_EPILOG = """\
rolltree VERB --help explains a verb; most take --json for machines and --seed.
Start with   rolltree demo
or           rolltree train grpo --task countdown --out runs/first
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; bad input is one line on stderr and exit code 2, a signal that ends it is 128 and its number."""
    _keep_channels()
    _wait_quietly()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        return answered("rolltree", _say_overview)
    if arguments[0] in ("-V", "--version"):
        from rolltree import __version__

        print(f"rolltree {__version__}")
        return 0
    return answered("rolltree", lambda: _dispatch(arguments[0], arguments[1:]))


def _wait_quietly() -> None:
    """Let the threads of a product sleep while they wait for each other, unless the user chose otherwise.

    By default they spin, and where another program takes a core each waits for one that cannot run, so a step takes
    many times as long. OpenMP reads this once, when torch is loaded.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _say_overview() -> int:
    print(overview(), flush=True)
    return 0


def answered(who: str, act: Callable[[], int]) -> int:
    """Run a command; bad input is one line on stderr and exit code 2, a signal that ends it is 128 and its number."""
    came: Sequence[signal.Signals] = ()
    try:
        with told_to_end() as came:
            return _answered(who, act)
    except KeyboardInterrupt:
        by = came[0] if came else signal.SIGINT
        said = "interrupted" if by == signal.SIGINT else f"ended by {by.name}"
        with suppress(OSError):  # where the terminal is gone nobody reads it
            print(f"{who}: {said}; what was finished is kept", file=sys.stderr)
        return 128 + by


def _answered(who: str, act: Callable[[], int]) -> int:
    try:
        return act()
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Exception as error:
        if isinstance(error.__cause__, KeyboardInterrupt):  # Python wraps it where a class is being made
            raise error.__cause__ from None
        print(f"{who}: {visible(_sentence(error))}", file=sys.stderr)
        return 2


def _keep_channels() -> None:
    """Where a caller closed a standard channel, nothing is said there; else a file of the run would take its number,
    and whatever a library prints would go into that file."""
    while (channel := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(channel, True)
    os.close(channel)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the program runs


def _sentence(error: Exception) -> str:
    """What is said of bad input, and of a place the system refuses; other failures are defects and are raised again."""
    if isinstance(error, RolltreeError):
        return " ".join(line.strip() for line in str(error).splitlines())  # what a library said may have many
    said = error if isinstance(error, OSError) and error.filename is not None else refused_write(error)
    if said is None:
        raise error
    where = "" if said.filename is None else f"{said.filename}: "
    way = "make room there or give another place" if said.errno in FULL else "give another place or mend this one"
    return f"{where}{said.strerror}; {way}"


def overview() -> str:
    """What `rolltree --help` prints."""
    width = max(map(len, VERBS))
    lines = "\n".join(f"  {verb:<{width}}  {about}" for verb, about in VERBS.items())
    head = "usage: rolltree VERB ...\n\nGrow rollouts for reinforcement learning of language models."
    return f"{head}\n\n{lines}\n\n{_EPILOG}"


def _dispatch(verb: str, arguments: list[str]) -> int:
    if verb not in VERBS:
        raise unknown("verb", verb, VERBS, "rolltree --help lists them")
    return importlib.import_module(f"rolltree.cli.{verb}").run(arguments)
