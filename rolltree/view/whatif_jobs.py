"""What-ifs started from a page: one at a time, in a process of its own, so that pages stay quick and it can end."""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rolltree.analysis.source import RunSource, ViewError
from rolltree.analysis.whatif_saved import next_name

LAUNCH = """
import sys
home = sys.argv.pop(1)
sys.path[:0] = [] if home in sys.path else [home]
from rolltree.cli import main
raise SystemExit(main())
"""
"""Begins this program anew, out of the folder that it lies in."""
HOME = str(Path(__file__).resolve().parents[2])
PATIENCE = 20.0
"""Seconds a cancelled what-if may take to save what it has."""


@dataclass(frozen=True, eq=False)
class WhatIfJob:
    """One that was started here."""

    run: str
    name: str
    process: subprocess.Popen[bytes]
    said: IO[bytes] = field(repr=False)

    @property
    def growing(self) -> bool:
        """Whether it is under way."""
        return self.process.poll() is None

    @property
    def trouble(self) -> str:
        """Why it did not come to its end, in its own sentence; "" where it did, or was cancelled."""
        code = self.process.poll()
        if code is None or code in (0, 130) or code < 0:
            return ""
        self.said.seek(0)
        lines = self.said.read().decode("utf-8", "replace").strip().splitlines()
        last = lines[-1] if lines else f"it ended with exit code {code}"
        return last.removeprefix("rolltree: ")

    def cancel(self) -> None:
        """Ask it to end; what was grown is kept."""
        if self.growing:
            self.process.terminate()


class WhatIfJobs:
    """The one that is under way, and the last one that was."""

    def __init__(self) -> None:
        self.last: WhatIfJob | None = None
        atexit.register(self._leave)

    def start(self, source: RunSource, options: dict[str, str]) -> WhatIfJob:
        """Start one with options as of the command line; refused while another is under way."""
        if self.last is not None and self.last.growing:
            raise ViewError(
                f"what-if {self.last.name} of {self.last.run} is growing; wait for it or cancel it, one grows at a time"
            )
        source.names.engine(options.get("engine", ""))
        if options.get("credit"):
            source.names.credit(options["credit"])
        name = next_name(source)
        typed = {"task": source.given.task, "recipe": source.given.recipe}
        given = [
            word
            for option, value in {**typed, **options, "name": name}.items()
            if value
            for word in (f"--{option}", value)
        ]
        if source.model:
            given += ["--model", source.model]
        said = tempfile.TemporaryFile()  # noqa: SIM115 - read when the process has ended
        process = subprocess.Popen(
            # Not from the folder that the viewer was started in, where a stranger's modules may lie.
            [sys.executable, "-P", "-c", LAUNCH, HOME, "whatif", str(source.path), *given, "--json"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
        )  # fmt: skip
        self.last = WhatIfJob(source.name, name, process, said)
        return self.last

    def of(self, source: RunSource, name: str) -> WhatIfJob | None:
        """The one with this name, where it is the last that was started."""
        job = self.last
        return job if job is not None and (job.run, job.name) == (source.name, name) else None

    def _leave(self) -> None:
        if self.last is not None and self.last.growing:
            self.last.cancel()
            try:
                self.last.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.last.process.kill()
