"""From the prompts TRL hands to a rollout function back to the items they were made of."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from rolltree.integrations.data import text_of
from rolltree.integrations.errors import AdaptError
from rolltree.task.protocol import Item


class TrlPrompts:
    """Items by their prompt, which is all that TRL tells a rollout function about a row."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items: dict[str, Item] = {}
        for item in items:
            known = self._items.setdefault(item.prompt, item)
            if known != item:
                raise AdaptError(
                    f"items {known.id!r} and {item.id!r} have the same prompt, which is all TRL passes on; "
                    "choose items with distinct_items(task, count)"
                )
        if not self._items:
            raise AdaptError("there are no items to roll out; choose some with distinct_items(task, count)")

    def item(self, prompt: Any, tokenizer: Any) -> Item:
        """The item of a prompt; one given as messages is asked through the tokenizer's chat template, if there is a
        tokenizer."""
        text = text_of(prompt, "a prompt of the batch", lambda messages: str(messages[-1].get("content")))
        item = self._items.get(text)
        if item is None:
            raise AdaptError(
                f"the data set asks {text[:80]!r}, which is none of the {len(self._items)} items of the rollouts; make "
                "both from the same items: prompt_dataset(items) and TreeRollouts(recipe, task, items)"
            )
        if isinstance(prompt, str) or tokenizer is None:
            return item
        rendered = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        return replace(item, prompt=str(rendered))


def blocks(prompts: Sequence[Any], count: int) -> list[Any]:
    """The prompt of each group; refuses batches that cut a group in two."""
    keys = [json.dumps(prompt, sort_keys=True, default=str) for prompt in prompts]
    starts = range(0, len(keys), count)
    if any(keys[i : i + count] != [keys[i]] * count for i in starts):
        raise AdaptError(
            f"a batch of {len(keys)} rows does not hold whole groups of {count}; set per_device_train_batch_size · "
            "steps_per_generation (and per_device_eval_batch_size) to a multiple of the number of generations"
        )
    return [prompts[i] for i in starts]
