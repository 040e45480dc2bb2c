"""A chat template that is given beside a model: a Jinja file in place of the tokenizer's own."""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from pathlib import Path
from typing import Any

from rolltree.errors import ModelError
from rolltree.policy.lora import whole_model
from rolltree.policy.models import model_folder, own_loader

GIVEN = "ROLLTREE_CHAT_TEMPLATE"
"""The model's folder and the template, as JSON, for this process and those it starts; `--chat-template` sets it."""
MOST = 2**20
"""Bytes of a template, at most."""


def give_template(policy: str, file: Path) -> None:
    """From now on the policy speaks in the file's template."""
    folder = whole_model(model_folder(policy))
    if own_loader(folder) is not None:
        raise ModelError(f"--chat-template is for language models, and {policy} writes latents; leave it out")
    os.environ[GIVEN] = json.dumps([str(folder.resolve()), _read(file), str(file)])


def with_template(tokenizer: Any, folder: Path) -> Any:
    """A tokenizer with the template that was given for its model, which must render; or as it is."""
    given = _given(folder)
    if given is None:
        return tokenizer
    tokenizer.chat_template, file = given
    try:
        tokenizer.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True)
    except Exception as error:  # templates are programs of their own and raise what they like
        first = (str(error).strip().splitlines() or [""])[0]
        raise ModelError(
            f"the chat template {file} cannot write a user's message: {type(error).__name__}: {first}; mend the file"
        ) from None
    return tokenizer


def told_of_template(folder: Path) -> list[str]:
    """What a run says of the template that was given for its model; nothing where none was."""
    given = _given(whole_model(folder))
    return [] if given is None else [f"chat template {blake2b(given[0].encode(), digest_size=8).hexdigest()}"]


def _given(folder: Path) -> tuple[str, str] | None:
    told = os.environ.get(GIVEN)
    if told is None:
        return None
    place, template, file = json.loads(told)
    return (template, file) if place == str(folder.resolve()) else None


def _read(file: Path) -> str:
    try:
        with file.open("rb") as source:
            raw = source.read(MOST + 1)
        text = raw.decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ModelError(f"the chat template {file} cannot be read: {why}; give a Jinja file") from None
    if len(raw) > MOST or not text.strip():
        how = "empty" if not text.strip() else f"larger than {MOST:,} bytes"
        raise ModelError(f"the chat template {file} is {how}; give a Jinja file")
    return text
