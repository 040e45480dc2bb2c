"""`rolltree view RUN …`: the web app. It listens on this machine only; told otherwise, it asks for a token."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import socket
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rolltree.analysis.source import FoundSources, RunSource, ViewError
from rolltree.origins import is_loopback
from rolltree.recipe.stored import Given
from rolltree.view.guard import Guard

PATIENCE = 60.0
"""Seconds a page may be silent (busy drawing, asleep, offline) before the viewer forgets it and it starts anew."""


@dataclass(frozen=True)
class ViewConfig:
    """Look at runs, trees and tokens in the browser."""

    runs: tuple[Path, ...] = ()
    """Run folders, folders that hold some, folders of forests, or files of nodes (.jsonl, .parquet)."""
    host: str = "127.0.0.1"
    """Address to listen on; anything but this machine's own makes a token necessary."""
    port: int = 8642
    """Port to listen on; 0 takes a free one."""
    token: str | None = None
    """The token to ask for; one is made up where it is needed and not given."""
    model: str = ""
    """Model (a name or a folder) whose tokenizer shows the text; the run's own when left out."""
    task: str = ""
    """The run's task, where that is code of your own, such as FILE.py:NAME; pages use no code that a run names."""
    recipe: str = ""
    """The run's recipe, where that is one of your own: FILE.py:NAME."""
    credit: tuple[str, ...] = ()
    """Credits of your own that pages may show: FILE.py:NAME."""
    open: bool = False
    """Open the page in a browser."""

    @property
    def given(self) -> Given:
        """What was typed in place of what runs name."""
        return Given(self.task, self.recipe, self.credit)


def serve(config: ViewConfig) -> int:
    """Open the sources and serve pages until interrupted."""
    found = FoundSources(config.runs, config.model, config.given)
    sources = found()
    for option, name in (("task", config.task), ("recipe", config.recipe)):
        if name and len(sources) > 1:
            raise ViewError(f"--{option} {name} is of one run, and {len(sources)} are opened; name one")
    # NiceGUI looks for stored settings in the working directory unless told where; the viewer stores nothing.
    settings = tempfile.mkdtemp(prefix="rolltree-view-")
    atexit.register(shutil.rmtree, settings, ignore_errors=True)
    os.environ.setdefault("NICEGUI_STORAGE_PATH", settings)
    try:
        from nicegui import app, ui
    except ImportError:
        raise ViewError("the viewer is not installed: pip install 'rolltree[view]'") from None
    from rolltree.view.pages import register

    port = free_port(config.host, config.port)
    local = is_loopback(config.host)
    token = config.token or (None if local else secrets.token_urlsafe(24))
    if token is not None and not all(c.isalnum() or c in "-_." for c in token):
        raise ViewError("a token must be made of letters, digits and - _ . only, so that it fits into an address")
    register(found, local=local)
    app.add_middleware(Guard, token=token, local=local)
    print(announcement(sources, config.host, port, token), flush=True)
    with suppress(KeyboardInterrupt):
        ui.run(
            host=config.host, port=port, title="Rolltree", reload=False, show=config.open, show_welcome_message=False,
            dark=None, tailwind=False, favicon="🌳", binding_refresh_interval=None, language="en-US",
            reconnect_timeout=PATIENCE,
        )  # fmt: skip
    return 0


def announcement(sources: list[RunSource], host: str, port: int, token: str | None) -> str:
    """What is printed at the start: the address to open, and what it shows."""
    shown = f"[{host}]" if ":" in host else host
    few = [s.name for s in sources[:6]]
    names = ", ".join(few) + (f" and {len(sources) - len(few)} more" if len(sources) > len(few) else "")
    address = f"http://{shown}:{port}/" + (f"?token={token}" if token else "")
    return f"Rolltree shows {names} at {address}\nStop with Ctrl-C."


def free_port(host: str, port: int) -> int:
    """The port if it can be listened on, or a free one for 0."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except (OSError, OverflowError) as error:
            raise ViewError(f"cannot listen on {host} port {port} ({error}); choose another --port or --host") from None
        return int(probe.getsockname()[1])
