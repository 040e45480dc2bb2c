"""Names out of stored files: registered parts, and what was typed again.

A run folder, a forest or an entry of evidence may come from a stranger, and looking at one must run nothing it brings.
So every part that a stored file names is loaded here. Parts of this package and of installed ones are found by their
names. A file of Python, a module, a command, data elsewhere, a model that would have to be fetched and the code of a
model are used only where the command line named them too (`Given`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rolltree.errors import RolltreeError
from rolltree.registry import in_file
from rolltree.visible import shortened

if TYPE_CHECKING:
    from rolltree.credit.advantage import Credit
    from rolltree.recipe.recipe import Recipe
    from rolltree.task.protocol import Task

SHOWN = 200
"""Characters of a name that a sentence repeats."""


class StoredNameError(RolltreeError):
    """A stored file names what only the command line may name; says what, and the option that gives it."""


@dataclass(frozen=True, slots=True)
class Given:
    """What was typed on this command line, and may therefore be code of one's own."""

    task: str = ""
    """The task, in place of the stored one."""
    recipe: str = ""
    """The recipe, in place of the stored one."""
    credits: tuple[str, ...] = ()
    """Credits that may be named."""
    code: bool = False
    """Whether the code that a stored model brings may run (`--trust-remote-code`)."""


@dataclass(frozen=True, slots=True)
class StoredNames:
    """The names that the files of one place give, loaded as far as a stranger may name them."""

    where: str
    """What was read, for people."""
    folder: Path | None = None
    """Data in it may be named."""
    given: Given = field(default_factory=Given)

    def task(self, name: str, level: int | None = None) -> Task:
        """A registered task, data near by, or the task that was given."""
        from rolltree.task.registry import is_registered, load_task

        if name != self.given.task and not is_registered(name) and not self._near(name):
            raise self._refused("the task", name, _task_again(name))
        return load_task(name, level=level)

    def recipe(self, name: str, knobs: Mapping[str, Any] | None = None) -> Recipe:
        """A registered recipe with stored knobs, or the one that was given; knobs name no code."""
        from rolltree.recipe.registry import load_recipe

        name = self.given.recipe or name
        if in_file(name) and name != self.given.recipe:
            raise self._refused("the recipe", name, f"--recipe {shlex.quote(name)}")
        plain = {knob: value for knob, value in (knobs or {}).items() if knob != "is"}
        for knob, value in plain.items():
            found = next((text for text in _texts(value) if in_file(text)), None)
            if found is not None:
                raise self._refused(f"in the recipe's knob {knob!r}", found, "--credit, with a credit by its name")
        return load_recipe(name, **plain)

    def credit(self, name: str) -> Credit:
        """A registered credit, or one that was given."""
        from rolltree.credit.registry import load_credit

        if in_file(name) and name not in self.given.credits:
            raise self._refused("the credit", name, f"--credit {shlex.quote(name)}")
        return load_credit(name)

    def engine(self, name: str) -> str:
        """The name of a registered engine, or the address of a server."""
        if in_file(name):
            raise self._refused("the engine", name, f"rolltree whatif RUN --engine {shlex.quote(name)}")
        return name

    def model(self, name: str, option: str) -> str:
        """A registered model or a folder that is here, with what it lies on; `option` gives any other."""
        from rolltree.policy.lora import base_named, holds_adapters
        from rolltree.policy.models import MODELS

        seen, below = set[str](), name
        while below not in MODELS and below not in seen:
            folder = Path(os.path.expanduser(below))  # an unknown user is no error here
            if not folder.is_dir():
                raise StoredNameError(
                    f"{self.where} names the model {shortened(below, SHOWN)!r}, which is not on this machine, and "
                    f"stored files fetch nothing; give it again with {option} {shlex.quote(shortened(below, SHOWN))}"
                )
            seen.add(below)
            if not holds_adapters(folder):
                break
            below = base_named(folder)
        return name

    def reading(self) -> AbstractContextManager[None]:
        """While a stored model is read: its code is not run, whatever the environment allows, unless that was given."""
        from rolltree.policy.hub import without_code

        return nullcontext() if self.given.code else without_code()

    def plain(self, told: Any, what: str) -> None:
        """Refuse stored values in which code is named and which nothing on the command line stands for."""
        found = next((text for text in _texts(told) if in_file(text)), None)
        if found is not None:
            raise StoredNameError(
                f"{what} of {self.where} names {shortened(found, SHOWN)!r}, and stored files cannot name code; make it "
                "again from the command line"
            )

    def _near(self, name: str) -> bool:
        """Whether a name is that of a file of data, without knobs, in this folder or below the one we are in."""
        from rolltree.task.data.source import KINDS

        try:
            path = Path(name.removeprefix("jsonl:")).resolve()
            there = path.suffix in KINDS and path.is_file()
        except (OSError, ValueError):  # no name that a file could have
            return False
        places = [place.resolve() for place in (self.folder, Path.cwd()) if place is not None]
        return there and any(map(path.is_relative_to, places))

    def _refused(self, what: str, name: str, way: str) -> StoredNameError:
        return StoredNameError(
            f"{self.where} names {what} {shortened(name, SHOWN)!r}, and stored files cannot name code or what lies "
            f"elsewhere; if it is yours, give it again: {shortened(way, 2 * SHOWN)}"
        )


def _task_again(name: str) -> str:
    """The option for a task; what an agent's run stores is the task of the agent, without its command."""
    prefix, _, inner = name.partition(":")
    known = f"agent:COMMAND?task={inner}" if prefix == "agent" and "?" not in inner else name
    return f"--task {shlex.quote(known)}"


def _texts(value: Any) -> Iterator[str]:
    """Every text in a stored value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in cast("Mapping[Any, Any]", value).items():
            yield from _texts(key)
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("list[Any]", value):
            yield from _texts(inner)
