"""The Hugging Face hub, with a quick answer where it cannot be reached."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from rolltree.errors import ModelError

# Whether Python code that lies in a model's folder may run here: never, unless somebody said so.

ALLOWED = "ROLLTREE_TRUST_REMOTE_CODE"
"""Set to 1, it allows such code in this process and those it starts; `--trust-remote-code` sets it."""


_STORED = ContextVar("_STORED", default=False)
"""Whether the model that is read was named by a stored file instead of a person."""


def trusts_code() -> bool:
    """Whether it was allowed."""
    return os.environ.get(ALLOWED) == "1" and not _STORED.get()


@contextmanager
def without_code() -> Generator[None]:
    """Meanwhile it is not allowed, whatever was said: a stored file names the model, and a stranger may have written
    both."""
    before = _STORED.set(True)
    try:
        yield
    finally:
        _STORED.reset(before)


def trust_code() -> None:
    """Allow it from now on."""
    os.environ[ALLOWED] = "1"


def check_code(path: Path, error: Exception) -> None:
    """Say in one sentence that a model was refused for the code it brings; other errors are left to the caller."""
    if "trust_remote_code" in str(error):
        way = "with --trust-remote-code" if _STORED.get() else f"with --trust-remote-code (or {ALLOWED}=1)"
        raise ModelError(
            f"the model in {path} brings Python code of its own, which is not run unless you say so; read it, and then "
            f"allow it {way}"
        ) from None


_FILES = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]


def hub_answers(seconds: float = 5.0) -> bool:
    """Whether the hub can be reached (its own client would retry for a minute before saying no)."""
    from huggingface_hub import constants, get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=seconds)
    except Exception:  # the session's transport decides what it raises; any failure means no
        return False
    return True


def from_hub(name: str, folder: Path | None = None) -> Path:
    """Folder of a model of the hub: from the local cache if it is there whole, else downloaded."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        if not hub_answers():
            return Path(snapshot_download(name, allow_patterns=_FILES, local_files_only=True))
        return Path(snapshot_download(name, allow_patterns=_FILES, local_dir=folder))
    except LocalEntryNotFoundError as error:
        raise ModelError(
            f"Model {name!r} is not in the local cache and the hub cannot be reached; download it where it can be and "
            "give its folder."
        ) from error
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        why = str(error).strip().splitlines()[0]
        raise ModelError(f"Model {name!r} cannot be had from the hub ({why}).") from error
