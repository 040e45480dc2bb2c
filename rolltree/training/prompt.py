"""The first prompt as the model sees it: token by token, special tokens included."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from rolltree.engine.protocol import Channel, Codec, EngineError, ExactCodec
from rolltree.policy.codec import HFCodec
from rolltree.task.protocol import Item, Task
from rolltree.tree.store.atomic import new_file

FILE = "prompt.json"
"""In a run's folder: `item`, `text` and `tokens`, a list of {id, text, special}."""


@dataclass(frozen=True, slots=True)
class PromptToken:
    """One token of a prompt."""

    id: int
    text: str
    special: bool = False


@dataclass(frozen=True, slots=True)
class TokenizedPrompt:
    """One prompt as it is tokenized."""

    item: str
    text: str
    tokens: tuple[PromptToken, ...]


def prompt_of(item: Item, codec: Channel) -> TokenizedPrompt:
    """An item's prompt as the policy with this codec reads it; of another channel, the actions it becomes."""
    if not isinstance(codec, Codec):
        given = [int(a) if np.ndim(a) == 0 else -1 for a in codec.encode(item.prompt)]
        return TokenizedPrompt(item.id, str(item.prompt), tuple(PromptToken(i, str(i)) for i in given))
    if not isinstance(item.prompt, str):
        raise EngineError(
            f"the prompt of item {item.id!r} is no text ({type(item.prompt).__name__}), and this policy writes tokens; "
            "choose the model that the task is for, or a task of texts"
        )
    ids = codec.encode(item.prompt)
    specials = codec.specials if isinstance(codec, ExactCodec) else {}
    anchor = codec.encode("a")[:1]  # some decoders drop a leading space
    lists = [[*anchor, i] for i in ids]
    texts = codec.decode_many(lists, exact=True) if isinstance(codec, HFCodec) else [codec.decode(one) for one in lists]
    head = codec.decode(anchor)
    tokens = (
        PromptToken(i, specials.get(i, t.removeprefix(head)), i in specials) for i, t in zip(ids, texts, strict=True)
    )
    return TokenizedPrompt(item.id, item.prompt, tuple(tokens))


def write_first(task: Task, seed: int, codec: Channel, folder: Path) -> None:
    """Keep the first training prompt of a run in its folder."""
    for item in islice(task.items("train", seed), 1):
        with new_file(folder / FILE, overwrite=True) as sink:
            json.dump(asdict(prompt_of(item, codec)), sink, indent=1, ensure_ascii=False)
