"""The Hugging Face hub, with a quick answer where it cannot be reached."""

from __future__ import annotations

from pathlib import Path

from rolltree.policy.errors import ModelError

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
