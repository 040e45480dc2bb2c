"""Run folders by a stranger: stored files that name code, given to every verb and every page that reads a run.

Promised: what stored files name is looked up among registered parts. Each case plants names of code in the files of a
run, and the code leaves a file; that file must never appear. Models are trusted in these cases, as by a user who set
`ROLLTREE_TRUST_REMOTE_CODE=1` for a model of their own: a stored file gains nothing by that.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import pickle
import select
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from rolltree.policy.hub import ALLOWED
from rolltree.tree.store import parquet
from tests.attack.frame import Attack, BrokenPromiseError, Chance
from tests.attack.inputs import answered

CANARY = "canary"
PATIENCE = 120
"""Seconds that a viewer may take to begin and a page to be drawn."""
SMALL = "--prompts 1 --group 2 --forests-every 1 --eval-every 0 --max-tokens 8 --threads 1 --out run"
VERBS = (
    "{whatif}", "{whatif} --credit grpo", "whatif run --show 001", "{whatif} --task arithmetic", "{whatif} --policy 0",
    "whatif run", "whatif run --show 001 --json", "doctor run", "card run", "budget run", "decisive run", "modes run",
    "credit grpo rloo run", "labels run --out rows.jsonl", "view run --html tree.html",
    f"train grpo --task arithmetic --steps 2 {SMALL} --resume",
    "solve best_of_n --task arithmetic --items 1 --item-tokens 20 --out run", "evidence --list --folder run",
)  # fmt: skip
"""Every verb that reads a run."""
STRANGER = """
from dataclasses import dataclass
from pathlib import Path

Path({canary!r}).touch()


@dataclass(frozen=True)
class Part:
    needs: frozenset = frozenset()

    def __call__(self, table):
        raise RuntimeError
"""


@functools.cache
def _template() -> tuple[Path, str, int]:
    """A run, a tree of it, and a node that the policy wrote."""
    place = Path(tempfile.mkdtemp(prefix="attack-strangers-"))
    answered(list(f"train grpo --task arithmetic --steps 1 {SMALL}".split()), place)
    tree = next(iter(parquet.load(place / "run" / "forests" / "step=1")))
    leaf = next(node for node in tree if node.role == "policy")
    ask = ["whatif", "run", "--tree", tree.id, "--node", str(leaf.id), "--n", "1"]
    answered(ask, place)
    if not (place / "run" / "whatif" / "001" / "about.json").is_file():
        raise BrokenPromiseError("the run that strangers start from could not be made")
    return place / "run", tree.id, leaf.id


class Folder:
    """A copy of the run with a stranger's code beside it and inside it."""

    def __init__(self, rng: Chance, place: Path) -> None:
        run, self.tree, self.node = _template()
        self.place, self.run, self.canary = place, place / "run", place / CANARY
        shutil.copytree(run, self.run)
        self.module = f"stranger_{hashlib.sha256(str(place).encode()).hexdigest()[:12]}"
        code = STRANGER.format(canary=str(self.canary))
        for file in (place / f"{self.module}.py", place / "evil.py", self.run / "evil.py"):
            file.write_text(code)
        (self.run / "items.jsonl").write_text(
            "".join(json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) + "\n" for n in range(16))
        )
        self.code = rng.choice([f"{place}/evil.py", "evil.py", "run/evil.py", "./run/evil.py", f"{self.run}/evil.py"])
        self.touch = f"touch {shlex.quote(str(self.canary))}"

    def told(self, file: str) -> Any:
        """What a JSON file of the run says."""
        return json.loads((self.run / file).read_text())

    def tell(self, file: str, **changes: Any) -> None:
        """Change a JSON file of the run."""
        (self.run / file).write_text(json.dumps({**self.told(file), **changes}))


def _tasks(folder: Folder) -> list[str]:
    code, module = folder.code, folder.module
    return [
        f"{code}:Part", f"agent:{folder.touch}?task=arithmetic", f"agent:{code}:Part?task=arithmetic",
        f"agent:{module}:Part?task=arithmetic", f"trl:{code}:Part", f"trl:{module}:Part", f"gym:{module}:Part-v0",
        f"verifiers:{module}", f"python:{folder.run}/items.jsonl", f"tagged:agent:{folder.touch}?task=arithmetic",
        f"tagged:{code}:Part", f"run/items.jsonl?reward={code}:Part", f"run/items.jsonl?reward={module}:Part",
        f"run/items.jsonl?tool={code}:Part", f"run/items.jsonl?mcp={folder.touch}", f"hf:{folder.run}",
        f"jsonl:run/items.jsonl?reward={code}:Part", f"arithmetic?x={code}:Part", f"mixed:{code}:Part",
    ]  # fmt: skip


def _task(rng: Chance, folder: Folder) -> str:
    folder.tell("config.json", task=[name := rng.choice(_tasks(folder)), 0])
    return f"the task {name.partition(':')[0]}"


def _recipe(rng: Chance, folder: Folder) -> str:
    parts = folder.told("config.json")["parts"]
    folder.tell("config.json", parts={**parts, "name": f"{folder.code}:Part"})
    return "the recipe"


def _knob(rng: Chance, folder: Folder) -> str:
    knob = rng.choice(["use_credit", "use_objective", "use_answers", "group", "ddof"])
    value = rng.choice([f"{folder.code}:Part", f"entropy_bonus(base='{folder.code}:Part')", f"{folder.code}:Part(x=1)"])
    folder.tell("config.json", recipe={**folder.told("config.json")["recipe"], knob: value})
    return "a knob"


def _nested(rng: Chance, folder: Folder) -> str:
    told = folder.told("config.json")
    name = rng.choice(["mssr", "seele", "ettrl"])
    folder.tell("config.json", parts={**told["parts"], "name": name}, recipe={"base": f"{folder.code}:Part",
                "use_credit": f"length_calibrated(base='{folder.code}:Part')"})  # fmt: skip
    return "a part of a part"


def _question(rng: Chance, folder: Folder) -> str:
    folder.tell("whatif/001/about.json", **rng.choice([
        {"credit": f"{folder.code}:Part"}, {"engine": f"{folder.code}:Part"}, {"model": f"{folder.code}:Part"},
    ]))  # fmt: skip
    return "a saved what-if"


def _model(rng: Chance, folder: Folder) -> str:
    own = folder.run / rng.choice(["model", "checkpoints/step-000001"])
    if not own.exists():
        shutil.copytree(folder.run / "checkpoints" / "step-000001", own)
        folder.tell("config.json", model=str(own))
    named = {"AutoConfig": "evil.Part", "AutoModelForCausalLM": "evil.Part", "AutoTokenizer": ["evil.Part", None]}
    for file in ("config.json", "tokenizer_config.json"):
        told = json.loads((own / file).read_text())
        told |= {"auto_map": named, "model_type": folder.module, "tokenizer_class": "EvilTokenizer"}
        (own / file).write_text(json.dumps(told))
    shutil.copy(folder.run / "evil.py", own / "evil.py")
    _sealed(folder)
    return "a model with code"


def _pickle(rng: Chance, folder: Folder) -> str:
    step = folder.run / "checkpoints" / "step-000001"
    if rng.random() < 0.5:
        (step / "training.pt").write_bytes(pickle.dumps(Touch(str(folder.canary))))
    else:
        (step / "model.safetensors").unlink()
        (step / "pytorch_model.bin").write_bytes(pickle.dumps(Touch(str(folder.canary))))
    _sealed(folder)
    return "a pickle"


class Touch:
    """An object that leaves the file where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return (os.close, (os.open(os.devnull, os.O_RDONLY),)) if not self.path else (open, (self.path, "w"))


def _anywhere(rng: Chance, folder: Folder) -> str:
    """Some texts of some JSON file become names of code."""
    files = sorted(p for p in folder.run.rglob("*.json*") if p.name != "tokenizer.json")
    file = rng.choice(files)
    names = [*_tasks(folder), f"{folder.code}:Part", f"{folder.module}:Part", "http://127.0.0.1:9/v1"]

    def changed(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: changed(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [changed(inner) for inner in value]
        return rng.choice(names) if isinstance(value, str) and rng.random() < 0.3 else value

    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    file.write_text("\n".join(json.dumps(changed(json.loads(line))) for line in lines) + "\n")
    _sealed(folder)
    return f"texts of {file.name}"


def _sealed(folder: Folder) -> None:
    """Make every checkpoint whole by its own seal, as a stranger would."""
    for step in (folder.run / "checkpoints").glob("step-*"):
        seal = json.loads((step / "whole.json").read_text())
        files = sorted(f for f in step.rglob("*") if f.is_file() and f.name != "whole.json")
        digests = {str(f.relative_to(step)): [f.stat().st_size, _digest(f)] for f in files}
        (step / "whole.json").write_text(json.dumps({**seal, "files": digests}))


def _digest(file: Path) -> str:
    from rolltree.training.checkpoint import _digest as digest  # pyright: ignore[reportPrivateUsage]

    return digest(file)


PLANTS = (_task, _recipe, _knob, _nested, _question, _model, _pickle, _anywhere)


def _words(command: str, folder: Folder) -> list[str]:
    return command.format(whatif=f"whatif run --tree {folder.tree} --node {folder.node} --n 1").split()


@contextlib.contextmanager
def _trusting(folder: Folder) -> Generator[None]:
    """Code of models is allowed and the stranger's module can be imported."""
    before = os.environ.get(ALLOWED)
    os.environ[ALLOWED] = "1"
    sys.path.append(str(folder.place))
    try:
        yield
    finally:
        sys.path.remove(str(folder.place))
        os.environ.pop(ALLOWED)
        if before is not None:
            os.environ[ALLOWED] = before


def _untouched(folder: Folder, what: str, by: str) -> None:
    if folder.canary.exists():
        raise BrokenPromiseError(f"{what} was run by {by}")


def verbs(rng: Chance, place: Path) -> str:
    """One stored file with names of code, and a verb that reads the run."""
    folder = Folder(rng, place)
    # In order, so that even a short form has every kind of name under each of the first verbs.
    plant = PLANTS[rng.number % len(PLANTS)]
    words = _words(VERBS[rng.number // len(PLANTS) % len(VERBS)], folder)
    what = plant(rng, folder)
    with _trusting(folder):
        outcome = answered(words, place)
    _untouched(folder, what, " ".join(words))
    return f"{words[0]}: {outcome}"


def pages(rng: Chance, place: Path) -> str:
    """A run whose every file names code, and all pages of a viewer on it."""
    if find_spec("nicegui") is None:
        return "the viewer is not installed"
    folder = Folder(rng, place)
    for plant in (_task, _question, _model, rng.choice([_recipe, _knob, _nested])):
        plant(rng, folder)
    own = f"{folder.code}:Part"
    where = {"run": "run", "step": "1", "tree": folder.tree, "node": str(folder.node)}
    addresses = [
        ("/", {}), *((page, where) for page in ("/run", "/step", "/tree", "/findings", "/decisive", "/modes", "/lens",
                                                "/whatif", "/search", "/calls", "/roles", "/pair", "/prompt")),
        ("/whatif", {"run": "run"}), ("/whatif", {"run": "run", "saved": "001"}), ("/lens", {**where, "credits": own}),
        ("/whatif", {"run": "run", "saved": "001", "credit": own}), ("/whatif", {**where, "credit": own}),
        ("/tree", {"run": "run/whatif/001", "tree": folder.tree}),
    ]  # fmt: skip
    with _trusting(folder), _viewer(folder) as address:
        for page, query in addresses:
            try:
                with urllib.request.urlopen(f"{address}{page}?{urlencode(query)}", timeout=PATIENCE) as answer:
                    answer.read()
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise
            _untouched(folder, "what the run names", f"the page {page}?{urlencode(query)}")
    return "shown"


@contextlib.contextmanager
def _viewer(folder: Folder) -> Generator[str]:
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "NICEGUI"))}
    words = [sys.executable, "-m", "rolltree", "view", "run", "--port", "0"]
    ours = os.pathsep.join([str(Path(__file__).parents[2]), str(folder.place), outside.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        words, cwd=folder.place, env={**outside, "PYTHONPATH": ours}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        said = process.stdout.readline() if ready else ""
        if " at http://" not in said:
            raise BrokenPromiseError(f"the viewer did not open the run: {said!r:.300}")
        address = said.rpartition(" at ")[2].strip().rstrip("/")
        _listening(address, process)
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def _listening(address: str, process: subprocess.Popen[str]) -> None:
    """Wait until the viewer takes connections, which is a moment after it has said where."""
    place, deadline = urlsplit(address), time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection((place.hostname or "", place.port or 0), 5).close()
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise BrokenPromiseError("the viewer does not listen")


ATTACKS = (
    Attack("strangers", "run folders whose files name code, and the verbs that read one", verbs, 24, 400),
    Attack("strangers-pages", "run folders whose files name code, and every page of the viewer", pages, 1, 40),
)
