"""Bad input by grammar: options of the command line, and files of data and nodes. Each is answered in one sentence."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import signal
import warnings
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any

from rolltree.cli import main
from rolltree.errors import RolltreeError
from rolltree.task.registry import load_task
from rolltree.training.config import Optim, TrainConfig
from rolltree.tree.store import jsonl
from tests.attack.frame import Attack, BrokenPromiseError
from tests.attack.odd import TEXTS, VALUES, broken_json

NUMBERS = ("0", "1", "2", "-1", "0.5", "nan", "inf", "-inf", "1e-9", "1e999", "7", "9" * 400, "1,2", "true")
SMALL = "--decoded 40 --steps 1 --prompts 1 --eval-every 0 --max-tokens 4 --threads 1 --out run"
SHORT = {"solve": "--items 1 --item-tokens 20", "judges": "--items 2", "labels": "--out rows.jsonl"}
"""What keeps other verbs short."""
LONGEST = 90
"""Seconds that a command may take."""
NODES = (
    '{"tree":"a","id":0,"role":"prompt","actions":[1,2]}\n'
    '{"tree":"a","id":1,"parent":0,"role":"policy","actions":[3],"logp":[-1.0],"scores":{"reward":1.0}}\n'
    '{"tree":"a","id":2,"parent":0,"role":"policy","actions":[4],"logp":[-2.0],"scores":{"reward":0.0}}\n'
)
ARGUMENTS = (
    "speculate",
    "agent",
    "prompt",
    "answer",
    "holdout",
    "reward",
    "solved_at",
    "chat",
    "system",
    "think",
    "tool",
    "device",
    "dtype",
    "scheduler",
    "task",
    "level",
    "policy",
    "engine",
    "control",
    "use_credit",
    "use_objective",
    "threads",
    "doctor",
    "lora",
    "cluster_engines",
    "group",
    "ddof",
    "nonsense",
)
TRAIN = tuple(f.name for f in (*fields(TrainConfig), *fields(Optim)) if f.name not in ("optim", "lora", "ranks"))
VERBS: dict[str, tuple[str, ...]] = {
    "train": (*TRAIN, *ARGUMENTS),
    "rollout": (
        "task",
        "level",
        "policy",
        "engine",
        "items",
        "items_from",
        "seed",
        "temperature",
        "top_p",
        "speculate",
        "agent",
        "prompt",
        "answer",
        "reward",
        "chat",
        "tool",
        "decoded",
        "show",
        "group",
        "ddof",
    ),
    "tasks": ("level", "items", "split", "seed"),
    "recipes": ("json",),
    "models": ("json",),
    "credit": ("ddof", "eps", "by", "out", "nonsense"),
    "doctor": ("out", "only", "nonsense"),
    "card": ("out", "model"),
    "budget": ("top", "out"),
    "compare": ("budget", "seeds", "sweep", "set", "task", "axis"),
    "evidence": ("nonsense", "out"),
    "serve": (
        "task",
        "level",
        "engine",
        "items",
        "seed",
        "host",
        "port",
        "max_tokens",
        "concurrent",
        "call_seconds",
        "session_calls",
        "session_tokens",
        "out",
        "nonsense",
    ),
    "solve": (
        "task",
        "level",
        "policy",
        "engine",
        "items",
        "items_from",
        "temperature",
        "top_p",
        "item_tokens",
        "run_tokens",
        "at_once",
        "out",
        "prompt",
        "answer",
        "reward",
        "chat",
        "think",
        "group",
        "nonsense",
    ),
    "whatif": (
        "step",
        "tree",
        "node",
        "token",
        "n",
        "credit",
        "policy",
        "temperature",
        "task",
        "level",
        "model",
        "name",
        "show",
        "json",
    ),
    "judges": ("task", "level", "policy", "judge", "ask", "entry", "options", "words", "delimiter", "items"),
    "labels": (
        "kind",
        "out",
        "ridge",
        "model",
        "threshold",
        "look_back",
        "merge",
        "until_error",
        "margin",
        "all_pairs",
    ),
    "decisive": ("top", "prior", "least", "step", "tree", "model", "json"),
    "modes": ("tree", "top", "model", "json"),
    "view": ("step", "tree", "overwrite", "port", "host", "nonsense"),
}
NAMES = {
    "train": ("grpo", "dapo", "nosuch", ""),
    "rollout": ("grpo", "treepo", "nosuch"),
    "tasks": (
        "countdown",
        "countdown?use_all=maybe",
        "jsonl:nodes.jsonl",
        "gym:",
        "mixed:",
        "reasoning-gym:",
        "x:y",
        "?",
    ),
    "recipes": ("grpo", "nosuch"),
    "models": ("get", "nosuch"),
    "credit": ("grpo nodes.jsonl", "nosuch nodes.jsonl"),
    "doctor": ("nodes.jsonl", "nosuch"),
    "card": ("nodes.jsonl", "nosuch"),
    "budget": ("nodes.jsonl", "nosuch"),
    "compare": ("nosuch other", "grpo nosuch"),
    "evidence": ("nosuch",),
    "serve": ("--policy nosuch", "--policy nosuch --agent x"),
    "solve": ("best_of_n", "mcts", "nosuch"),
    "whatif": ("nodes.jsonl", "nodes.jsonl --node 1", "nosuch"),
    "judges": ("",),
    "labels": ("nodes.jsonl", "nosuch"),
    "decisive": ("nodes.jsonl", "nosuch"),
    "modes": ("nodes.jsonl", "nosuch"),
    "view": ("nodes.jsonl --html tree.html", "nosuch --html tree.html"),
}
OWN_DATA = ("items.jsonl", "items.parquet", "hf:nosuch/place:train", "hf:", "hf:a:b:c", "nodes.jsonl", "nosuch.json")
"""Data of one's own, as --task."""


def command(rng: random.Random, place: Path) -> str:
    """One command line with one to three options that hold odd values, and often a name that is none."""
    verb = rng.choice(sorted(VERBS))
    words = [verb, *(NAMES[verb][0] if rng.random() < 0.7 else rng.choice(NAMES[verb])).split()]
    if verb == "train":
        words += SMALL.split()
    words += SHORT.get(verb, "").split()
    if verb in ("train", "rollout", "solve") and rng.random() < 0.25:
        words += ["--task", rng.choice(OWN_DATA)]
    for _ in range(rng.randint(1, 2)):
        words.append(f"--{rng.choice(VERBS[verb]).replace('_', '-')}")
        if rng.random() < 0.95:
            words.append(rng.choice(NUMBERS if rng.random() < 0.6 else TEXTS))
    (place / "nodes.jsonl").write_text(NODES)
    (place / "items.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n{"question": "1+2=", "answer": "3"}\n')
    return answered(words, place)


def answered(words: list[str], place: Path) -> str:
    """Run a command as its program would; whatever is not a result or a sentence is a broken promise."""
    out, err, here = io.StringIO(), io.StringIO(), Path.cwd()
    previous = signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, LONGEST, 5)
    try:
        os.chdir(place)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = main(words)
    except SystemExit as left:
        code = left.code
    except BaseException as error:
        raise BrokenPromiseError(f"{words!r:.300} raised {type(error).__name__}: {error!s:.200}") from error
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
        os.chdir(here)
    said = err.getvalue().strip()
    if code in (0, None):
        return "done"
    if code == 1 and not said and out.getvalue().strip():
        return "found something"  # as the doctor does
    if "Traceback" in said or not said:
        raise BrokenPromiseError(f"{words!r:.300} ended with {code} and said {said[-300:]!r}")
    if re.search("[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]", said):
        raise BrokenPromiseError(f"{words!r:.300} sent control characters to the terminal: {said[-300:]!r}")
    if code == 2 and said.startswith("rolltree: ") and len(said.splitlines()) > 3:
        raise BrokenPromiseError(f"{words!r:.300} said more than a sentence: {said[-300:]!r}")
    return "a sentence"


def _late(*_: object) -> None:
    raise TimeoutError(f"took more than {LONGEST} s")


def data(rng: random.Random, place: Path) -> str:
    """A file of prompts and answers with a line gone wrong, loaded and read."""
    good = {"prompt": "1+1=", "answer": "2", "split": "train", "id": "a", "level": 1}
    row: Any = dict(good, prompt=f"{rng.random()}")
    for _ in range(rng.randint(1, 2)):
        row[rng.choice([*good, "other"])] = rng.choice(VALUES)
    line = json.dumps(row)
    if rng.random() < 0.4:
        line = broken_json(rng, line)
    file = place / "items.jsonl"
    text = f"{json.dumps(good)}\n{line}\n"
    file.write_bytes(text.encode("utf-8", rng.choice(["surrogatepass", "replace"])))

    def use() -> None:
        for item in islice(load_task(f"jsonl:{file}").items("train"), 2):
            item.prompt.encode()

    return refused(use, line)


def nodes(rng: random.Random, place: Path) -> str:
    """A file of nodes by another program with a line gone wrong."""
    lines = NODES.splitlines()
    at = rng.randrange(3)
    row: Any = json.loads(lines[at])
    fields_ = [
        "tree",
        "id",
        "parent",
        "role",
        "actions",
        "logp",
        "scores",
        "status",
        "notes",
        "version",
        "top",
        "dtype",
    ]
    for _ in range(rng.randint(1, 2)):
        row[rng.choice([*fields_, "other"])] = rng.choice(VALUES)
    lines[at] = json.dumps(row) if rng.random() < 0.6 else broken_json(rng, lines[at])
    file = place / "nodes.jsonl"
    file.write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    return refused(lambda: [tree.leaves() for tree in jsonl.read(file)], lines[at])


def refused(use: Any, about: str) -> str:
    """Whether something bad was taken or refused in a sentence."""
    try:
        use()
    except RolltreeError as error:
        if "\n" in str(error) or not str(error):
            raise BrokenPromiseError(f"{about!r:.200}: not one sentence: {error!s:.300}") from error
        return "a sentence"
    except Exception as error:
        raise BrokenPromiseError(f"{about!r:.200} raised {type(error).__name__}: {error!s:.200}") from error
    return "taken"


ATTACKS = (
    Attack("commands", "odd values in options of the command line", command, 6, 400),
    Attack("data", "files of prompts and answers gone wrong", data, 30, 400),
    Attack("nodes", "files of nodes gone wrong", nodes, 60, 400),
)
