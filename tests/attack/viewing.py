"""The viewer: requests by grammar against its guard, and run folders that somebody has tampered with."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from rolltree.analysis.decisive import decisions, newest_step
from rolltree.analysis.modes import every_step
from rolltree.analysis.source import open_sources
from rolltree.errors import RolltreeError
from rolltree.tree import Forest, Tree
from rolltree.tree.store.parquet import save_step
from rolltree.view.guard import Guard
from rolltree.view.onefile import page_of
from rolltree.view.runs import curve, lines_of, metric_names, steps, summary
from tests.attack.frame import Attack, BrokenPromiseError
from tests.attack.odd import TEXTS, VALUES, broken_json

SECRET = "secret-of-the-host"
HOSTS = (
    "127.0.0.1:8642",
    "localhost",
    "evil.example",
    "[",
    "[::1]:8642",
    "127.0.0.1.evil.example",
    "127.0.0.1@evil.example",
    "evil.example:8642",
    "0x7f.1",
    "127.1",
    "::1",
    "[::1",
    "127.0.0.1:8642, evil.example",
    "localhost.",
    "LOCALHOST",
)
OWN = {"127.0.0.1", "localhost", "::1"}


def requests(rng: random.Random, place: Path) -> str:
    """One request with odd headers and an odd path, with and without the token."""
    host, origin = rng.choice(HOSTS), rng.choice([None, *(f"http://{h}" for h in HOSTS), "null", "http://[", "file://"])
    token = rng.choice([None, "right"])
    query = rng.choice(["", "token=right", "token=wrong", "token=", "token=right&token=wrong", "a=%ff&token=%00"])
    headers = {
        "host": host,
        "cookie": rng.choice(["", "rolltree-view=wrong", "rolltree-view=right", '="', "\xff;;="]),
        "authorization": rng.choice(["", "Bearer right", "Bearer wrong", "x"]),
    }
    if origin is not None:
        headers["origin"] = origin
    path = rng.choice(["/", "//evil.example", "/\\evil.example", "/a\r\nx: y", "/../..", f"/{rng.choice(TEXTS)}"])
    kind, method = rng.choice(["http", "websocket"]), rng.choice(["GET", "POST", "PUT", "OPTIONS"])
    scope = {
        "type": kind,
        "method": method,
        "path": path,
        "query_string": query.encode("latin-1", "replace"),
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in headers.items()],
    }
    sent: list[Any] = []
    passed: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        passed.append(1)

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    asyncio.run(Guard(app, token, local=token is None)(scope, receive, send))
    known = (
        "right" in query.split("&")[-1] or headers["cookie"].endswith("=right") or "Bearer right" in headers.values()
    )
    if passed:
        if token and not known:
            raise BrokenPromiseError(f"let in without the token: {scope!r:.400}")
        if origin is not None and origin != f"http://{host}":
            raise BrokenPromiseError(f"let in a page of {origin}: {scope!r:.400}")
        if token is None and "evil" in host:
            raise BrokenPromiseError(f"let in under another name: {scope!r:.400}")
        return "let in"
    if not sent:
        raise BrokenPromiseError(f"no answer to {scope!r:.400}")
    for name, value in sent[0].get("headers", ()):
        if name == b"location" and (not value.startswith(b"/") or value[1:2] in (b"/", b"\\") or b"\n" in value):
            raise BrokenPromiseError(f"leads away by {value!r}")
    return str(sent[0].get("status", sent[0].get("code")))


def folders(rng: random.Random, place: Path) -> str:
    """A run folder with links that lead out, damaged metrics and files, beside a good one."""
    outside, good, run = place / "outside", place / "good", place / "run"
    for at, word in ((outside, SECRET), (good, "good")):
        tree = Tree(word, [1, 2])
        tree.extend(0, [3], logp=[-1], status="done", scores={"reward": 1.0}, notes={"answer": word})
        tree.event("note", None, word)
        save_step(Forest([tree]), at / "forests", 1)
        (at / "metrics.jsonl").write_text(json.dumps({"kind": "train", "step": 1, "reward": 0.5, "decoded": 9}) + "\n")
        (at / "config.json").write_text(json.dumps({"task": [word, 1], "model": "nano"}))
    shutil.copytree(good, run)
    for _ in range(rng.randint(1, 3)):
        files = sorted(
            p for p in run.rglob("*") if p != run and not p.is_symlink() and run.resolve() in p.resolve().parents
        )
        _tamper(rng, rng.choice(files), run, outside)
    told = [_looked(source) for source in open_sources([run, good])]
    if SECRET in told[0]:
        raise BrokenPromiseError("something outside the run was shown")
    if "trouble" in told[1]:
        raise BrokenPromiseError("a good run was not shown beside a damaged one")
    return "trouble, said" if "trouble" in told[0] else "shown"


def _tamper(rng: random.Random, file: Path, run: Path, outside: Path) -> None:
    away = outside / file.relative_to(run)
    kind = rng.choice(["link", "cut", "bytes", "text"])
    if kind == "link" or file.is_dir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
        file.symlink_to(rng.choice([away, Path(os.path.relpath(away, file.parent))]))
    elif kind == "text" and file.suffix in (".json", ".jsonl"):
        line = {
            "kind": "train",
            "step": 1,
            "reward": rng.choice(VALUES),
            rng.choice(["step", "kind", "x"]): rng.choice(VALUES),
        }
        file.write_text(
            rng.choice([json.dumps(line) + "\n", broken_json(rng, json.dumps(line)) + "\n"]), errors="replace"
        )
    else:
        whole = file.read_bytes()
        at = rng.randrange(len(whole) + 1)
        file.write_bytes(whole[:at] + (b"" if kind == "cut" else np.random.default_rng(at).bytes(8) + whole[at + 8 :]))


def _looked(source: Any) -> str:
    """All that pages would show of a source, as one text."""
    said: list[str] = []

    def show(what: Any) -> None:
        try:
            said.append(repr(what()))
        except RolltreeError as error:
            said.append(f"trouble: {error}")

    show(lambda: summary(source))
    show(
        lambda: [curve(source.name, lines, m, "decoded") for lines in [lines_of(source)] for m in metric_names([lines])]
    )
    show(lambda: steps(source))
    show(lambda: [(t.id, t.events, [n.notes for n in t]) for t in source.archive(1)])
    show(lambda: [page_of(source, newest_step(source), t.id).replace("trouble", "") for t in source.archive(1)])
    show(lambda: decisions(every_step(source)))
    said[0] = said[0].replace("trouble=''", "")
    return "\n".join(said)


SCRIPTS = (
    "<script>alert(1)</script>", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<!--<script>",
    "\"><svg onload=alert(1)>", "' onmouseover='alert(1)", "</title><b>x", "</style><b>x", "\u2028<b>x", "<b>\x00x",
)  # fmt: skip


def pages(rng: random.Random, place: Path) -> str:
    """A tree as a file of its own, whose texts, names and notes are scripts."""

    def word() -> str:
        return rng.choice(SCRIPTS)

    tree = Tree(word(), [1, 2], item=word())
    for _ in range(2):
        node = tree.extend(0, [rng.randrange(9)], logp=[-1], status="done", scores={"reward": rng.random()},
                           notes={"answer": word(), word(): word(), "text": word()})  # fmt: skip
        tree.event("note", node, word())
    save_step(Forest([tree]), place / "run" / "forests", 1)
    (place / "run" / "metrics.jsonl").write_text('{"kind": "train", "step": 1}\n')
    (place / "run" / "config.json").write_text(json.dumps({"task": [word(), 1], "model": word()}))
    (source,) = open_sources([place / "run"])
    page = page_of(source, 1, tree.id)
    for script in SCRIPTS:
        if "<" in script and script in page:
            raise BrokenPromiseError(f"{script!r} stands in a page as it is")
    return "shown as text"


ATTACKS = (
    Attack("requests", "requests to the viewer's guard", requests, 60, 400),
    Attack("pages", "trees as files of their own, whose texts are scripts", pages, 5, 100),
    Attack("folders", "run folders with links that lead out and damaged files", folders, 10, 300),
)
