"""All sessions in front of one engine: opening, finding, ending and keeping them within bounds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rolltree.engine.protocol import Engine, token_codec
from rolltree.gateway.choosing import AnswerChoice
from rolltree.gateway.errors import GatewayError
from rolltree.gateway.session import GatewaySession
from rolltree.gateway.template import Template, template_of
from rolltree.gateway.tree_folder import TreeFolder
from rolltree.generate.answers import verdict_of
from rolltree.task.protocol import Item, Task
from rolltree.tree import Forest, Tree


@dataclass(frozen=True, slots=True)
class GatewayBounds:
    """What clients may take. A bound that is met is told to the client in one sentence."""

    body_bytes: int = 8 * 2**20
    concurrent: int = 256
    """Calls that are sampled at once."""
    waiting: int = 4096
    """Calls that may wait for that."""
    call_seconds: float = 600.0
    idle_seconds: float = 1800.0
    """A session that is silent for longer has failed."""
    sessions: int = 100_000
    calls: int = 1000
    """Calls of one session."""
    tokens: int = 1_000_000
    """Sampled tokens of one session."""
    max_tokens: int = 1024
    """Tokens of an answer where the client names no limit."""


ID = 200
"""Characters of the name of a session or an item, at most."""


@dataclass(repr=False)
class Gateway:
    """Sessions by name, and the forest they grow: a tree for each item, a branch or more for each session."""

    engine: Engine
    model: str = "policy"
    task: Task | None = None
    bounds: GatewayBounds = GatewayBounds()
    choice: AnswerChoice | None = None
    """Which of several answers to a call is handed over; None samples as many as the client asks for."""
    aliases: tuple[str, ...] = ()
    """Names of models that clients may ask for beside `model`; "*" takes any."""
    ignored: frozenset[str] = frozenset()
    """Fields of calls that are taken for not sent."""
    out: TreeFolder | None = None
    """Where sessions are written down."""
    searches: TreeFolder | None = None
    """Where the searches behind their answers are written down."""
    clock: Callable[[], float] = time.monotonic
    forest: Forest = field(default_factory=Forest)
    sessions: dict[str, GatewaySession] = field(default_factory=dict[str, GatewaySession])
    items: dict[str, Item] = field(default_factory=dict[str, Item])
    template: Template = field(init=False)

    def __post_init__(self) -> None:
        token_codec(self.engine, "the gateway")
        self.template = template_of(getattr(self.engine.codec, "tokenizer", None))
        self._began = self.clock()
        self._looked = 0.0
        if self.choice is not None:
            self.choice.check(self.engine)

    def open(self, name: str, item: str | Item | None = None) -> GatewaySession:
        """A new session, of an item that may be unknown so far (by default one of its own)."""
        if name in self.sessions:
            raise GatewayError(f"there is a session {name!r} already; choose another name", 409)
        if not _printable(name) or "/" in name:
            raise GatewayError(f"{name[:50]!r} is no name for a session; use 1 to {ID} printable characters without /")
        if isinstance(item, str) and not _printable(item):
            raise GatewayError(f"{item[:50]!r} is no name for an item; use 1 to {ID} printable characters")
        if len(self.sessions) >= self.bounds.sessions:
            raise GatewayError(f"there are {len(self.sessions)} sessions, and no more are kept", 429)
        if isinstance(item, Item):
            self.items[item.id] = item
        id = item.id if isinstance(item, Item) else item or name
        if id not in self.forest:
            self.forest.add(Tree(id, (), task="" if self.task is None else self.task.name, item=id))
        session = GatewaySession(
            name, self.engine, self.template, self.forest[id], self.now, self.choice, self.items.get(id),
            on_outcome=None if self.out is None else self.out.changed,
        )  # fmt: skip
        self.sessions[name] = session
        session.tree.event("start", None, f"session {name}", at=self.now(), session=name)
        return session

    @property
    def names(self) -> tuple[str, ...]:
        """The names of models that clients may ask for."""
        return (self.model, *(name for name in self.aliases if name not in ("*", self.model)))

    def asked_for(self, model: object) -> None:
        """Refuse a call for a model that is not here; a call that names none is for this one."""
        if model is None or "*" in self.aliases or model in self.names:
            return
        raise GatewayError(
            f"there is no model {model!r:.200} here; served is {' and '.join(map(repr, self.names))}, and "
            "--served-model-name adds names", 404, param="model", code="model_not_found",
        )  # fmt: skip

    def next_item(self) -> Item | None:
        """An item of the task for a session that names none, each in its turn."""
        items = list(self.items.values())
        return items[len(self.sessions) % len(items)] if items else None

    def session(self, name: str) -> GatewaySession:
        """The session of a call; a name that was never heard opens one."""
        found = self.sessions.get(name) or self.open(name)
        bounds, sampled = self.bounds, found.spent
        if not found.ended and (len(found.record.calls) >= bounds.calls or sampled >= bounds.tokens):
            why = f"{len(found.record.calls)} calls and {sampled} tokens are the most a session may take"
            found.tree.event("budget", None, why, at=self.now(), session=name)
            raise GatewayError(f"session {name!r} is at its end: {why}; give it a reward or end it", 429)
        return found

    def known(self, name: str) -> GatewaySession:
        """A session that must be there."""
        if name not in self.sessions:
            raise GatewayError(f"there is no session {name!r}", 404)
        return self.sessions[name]

    async def verified(self, session: GatewaySession, final: str) -> dict[str, Any]:
        """End a session with what the task's verifier says about its final artefact."""
        item = self.items.get(session.tree.item)
        if self.task is None or item is None:
            raise GatewayError("no task was given to judge with; start with --task and open sessions on its items")
        if self.task.max_turns:
            raise GatewayError(f"{self.task.name} judges its own environment, not a text; send a reward instead")
        try:
            verdict = await verdict_of(self.task.verify(item, None, final))
        except Exception as error:  # what a verifier raises is no outcome
            session.end(None, f"the verifier: {type(error).__name__}: {error}")
            raise GatewayError(f"the verifier failed: {error}", 500) from error
        for node in session.end(verdict.score, verdict.why or "verified", dict(verdict.parts)):
            node.notes["answer"] = verdict.answer
        return {"reward": verdict.score, "why": verdict.why, "parts": dict(verdict.parts)}

    def expire(self) -> None:
        """Sessions that were silent for too long have failed."""
        for session in self.sessions.values():
            idle = self.now() - session.touched
            if not session.ended and not session.busy and idle > self.bounds.idle_seconds:
                session.end(None, f"nothing was heard for {idle:.0f} s")

    async def keep(self, *, answers: bool = False) -> None:
        """Write down what has ended since, and its searches; with `answers` also what open sessions were answered."""
        if self.out is not None and answers:
            now = self.now()
            self.out.changed(*(one.tree for one in self.sessions.values() if one.touched >= self._looked))
            self._looked = now
        for folder in (self.searches, self.out):
            if folder is not None:
                await folder.keep()

    def close(self) -> None:
        """End what has not ended: those sessions have no outcome."""
        for session in self.sessions.values():
            if not session.ended:
                session.end(None, "the gateway was closed before the session ended")

    def now(self) -> float:
        """Seconds since the gateway began."""
        return self.clock() - self._began


def _printable(name: str) -> bool:
    return 0 < len(name) <= ID and name.isprintable()
