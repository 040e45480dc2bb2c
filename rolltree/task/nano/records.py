"""JSON records against a schema: `age:int,ok:bool,name:str|ok yes;name ki;age 34` becomes a typed object."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar

from rolltree.task.items import SingleTurn, check_level, digest, stream
from rolltree.task.nano.lookup import NAMES
from rolltree.task.protocol import Item, Split, Verdict

SHAPES = {1: (2, ("str", "int")), 2: (3, ("str", "int", "bool")), 3: (3, ("str", "int", "bool", "int?")),
          4: (4, ("str", "int", "bool", "int?", "ints"))}  # fmt: skip
"""Level -> how many fields, and their types. `int?` is a number or null, `ints` a list of numbers."""
FIELDS = ("age", "id", "kin", "ok", "own", "pay", "pet", "who")
LONGEST = 400
"""Characters of an answer worth parsing."""


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


TYPES: Mapping[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "int": _is_int,
    "bool": lambda value: isinstance(value, bool),
    "int?": lambda value: value is None or _is_int(value),
    "ints": lambda value: isinstance(value, list) and all(map(_is_int, value)),
}
"""Type -> whether a parsed value has it."""


@dataclass(frozen=True)
class Records(SingleTurn):
    """Write the record as one JSON object. Right keys, types and values score 1; order and spaces are free."""

    measures: ClassVar[frozenset[str]] = frozenset({"keys", "parses", "types", "values"})
    level: int = 2
    name: str = field(default="records", init=False)
    stop: tuple[str, ...] = field(default=(), init=False)
    max_tokens: int = 64
    max_turns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_level(self.name, self.level, tuple(SHAPES))

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Schema and source name the fields in different orders. Orders of the same record share a split."""
        return stream(self.name, self.level, split, seed, partial(_draw, self.level))

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Parts: `parses`, `keys` (exactly the schema's), `types` and `values` (shares of the fields)."""
        schema, right = item.meta["schema"], json.loads(item.answer)
        parts: dict[str, float] = {"parses": 0.0, "keys": 0.0, "types": 0.0, "values": 0.0}
        try:
            record = _parse(text)
        except ValueError as error:
            return Verdict(0.0, parts, why=f"not a JSON object: {error}")
        typed = {key for key in schema if key in record and TYPES[schema[key]](record[key])}
        parts["parses"] = 1.0
        parts["keys"] = float(record.keys() == schema.keys())
        parts["types"] = len(typed) / len(schema)
        parts["values"] = sum(record[key] == right[key] for key in typed) / len(schema)
        wrong = [key for key in schema if key not in typed or record[key] != right[key]]
        wrong += [key for key in record if key not in schema]
        why = f"wrong: {', '.join(sorted(wrong))}" if wrong else ""
        return Verdict(float(not wrong), parts, json.dumps(record, sort_keys=True), why)

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """The record in schema order; each field goes wrong with probability `noise`: kept as text, skipped, taken
        from its neighbour, or repeated from the type's other value."""
        right = json.loads(item.answer)
        record: dict[str, Any] = {}
        for key in item.meta["schema"]:
            if rng.random() >= noise:
                record[key] = right[key]
            elif (kind := rng.random()) < 0.5:
                record[key] = item.meta["source"][key]
            elif kind < 0.7:
                record[key] = right[rng.choice(sorted(right))]
            elif kind < 0.85:
                record[key] = not right[key] if isinstance(right[key], bool) else None
        return json.dumps(record, separators=(",", ":"))


def _parse(text: str) -> dict[str, Any]:
    """A JSON object with distinct keys and plain numbers; anything else is a ValueError."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a key is given twice")
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    if len(text) > LONGEST:
        raise ValueError(f"longer than {LONGEST} characters")
    try:
        record = json.loads(text, object_pairs_hook=distinct, parse_constant=refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("the top level is not an object")  # noqa: TRY004 - bad text, not a bad call
    return record


def _value(kind: str, rng: Random) -> tuple[Any, str]:
    """A value of a type and how the source writes it."""
    if kind == "str":
        word = rng.choice(NAMES)
        return word, word
    if kind == "bool":
        truth = rng.random() < 0.5
        return truth, "yes" if truth else "no"
    if kind == "ints":
        numbers = [rng.randint(1, 99) for _ in range(rng.randint(1, 2))]
        return numbers, " ".join(map(str, numbers))
    if kind == "int?" and rng.random() < 0.5:
        return None, "-"
    number = rng.randint(0, 99)
    return number, str(number)


def _draw(level: int, rng: Random) -> tuple[str, Item]:
    """A schema, a record, and a source that gives its fields in another order."""
    count, types = SHAPES[level]
    schema = {name: rng.choice(types) for name in rng.sample(FIELDS, count)}
    values = {name: _value(kind, rng) for name, kind in schema.items()}
    given = rng.sample(sorted(schema), count)
    prompt = ",".join(f"{name}:{kind}" for name, kind in schema.items())
    prompt += "|" + ";".join(f"{name} {values[name][1]}" for name in given) + "\n"
    record = {name: value for name, (value, _) in values.items()}
    content = json.dumps([sorted(schema.items()), record], sort_keys=True)
    meta = {"schema": schema, "source": {name: text for name, (_, text) in values.items()}}
    return content, Item(f"records-{digest(prompt)}", prompt, json.dumps(record, sort_keys=True), level, meta)
