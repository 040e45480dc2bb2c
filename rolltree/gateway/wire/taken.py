"""Which fields of a body are honoured, which change nothing, and which are refused: nothing is ignored in silence."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rolltree.errors import did_you_mean
from rolltree.gateway.errors import GatewayError
from rolltree.visible import shortened

Body = Mapping[str, Any]
BOOKKEEPING = {
    "user": "names the client's user",
    "metadata": "a call of an agent may name its state in it",
    "store": "nothing is kept but the session",
    "service_tier": "there is one",
    "safety_identifier": "names the client's user",
    "prompt_cache_key": "prefixes are found by themselves",
    "prompt_cache_retention": "prefixes are found by themselves",
}
"""Fields that say nothing of the answer."""
SAMPLED = frozenset({"model", "temperature", "top_p", "top_k", "seed", "stream", "ignore_eos", "tools", "tool_choice"})
"""Fields that chats of all protocols know."""


@dataclass(frozen=True, slots=True)
class Only:
    """A field of which some values change nothing here; others cannot be kept and are refused."""

    takes: str
    """Those values, in words."""
    why: str
    """What is missing for the others."""
    right: Callable[[Any], bool]


def only(*values: Any, why: str) -> Only:
    """Some values alone."""
    return Only(
        " or ".join(json.dumps(value) for value in values), why, lambda told: any(_same(told, v) for v in values)
    )


UNFORCED = "nothing forces the form of an answer here"
UNPENALISED = "the policy is sampled as it is"
NEUTRAL = {
    "frequency_penalty": only(0, why=UNPENALISED),
    "presence_penalty": only(0, why=UNPENALISED),
    "repetition_penalty": only(1, why=UNPENALISED),
    "min_p": only(0, why=UNPENALISED),
    "logit_bias": only({}, why=UNPENALISED),
    "parallel_tool_calls": only(True, why="the policy writes as many calls as it likes"),
}
"""Fields of sampling that engines elsewhere know."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one protocol."""

    path: str
    honoured: frozenset[str]
    idle: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields that are taken and change nothing, with the reason."""
    limited: Mapping[str, Only] = field(default_factory=dict[str, Only])

    def check(self, body: Body) -> None:
        """Refuse a field that would be ignored. `null` is a field that was not sent."""
        for name, value in body.items():
            if value is None or name in self.honoured or name in self.idle:
                continue
            known = self.limited.get(name)
            if known is None:
                near = did_you_mean(name, [*self.honoured, *self.idle, *self.limited])
                raise refused(name, f"{name[:80]!r} is not served at {self.path}{f', {near}' if near else ''}")
            if not known.right(value):
                raise refused(name, f"{name} is {shortened(_json(value), 80)}; {known.why}, so it takes {known.takes}")

    def told(self, name: str) -> str:
        """What becomes of a field, in a word."""
        if name in self.honoured:
            return "honoured"
        if name in self.idle:
            return "no effect"
        return f"`{self.limited[name].takes}` only" if name in self.limited else ""


def refused(name: str, said: str) -> GatewayError:
    """The refusal of a field, with the way out."""
    return GatewayError(
        f"{said}; leave it out, or have it ignored (rolltree serve --ignore-fields {name[:80]}, or ignore={name[:80]} "
        "behind an --agent)", param=name[:80], code="unsupported_parameter",
    )  # fmt: skip


def chosen(told: Any, tools: bool) -> bool:
    """Whether the policy is shown tools, by `tool_choice` (OpenAI's text or Anthropic's object)."""
    kind = told
    if isinstance(told, Mapping):
        given = cast(Mapping[str, Any], told)
        kind = given.get("type")
        if given.get("disable_parallel_tool_use") and tools and kind != "none":
            raise refused(
                "tool_choice", "disable_parallel_tool_use cannot be kept: the policy writes as many as it likes"
            )
    if kind not in (None, "auto", "none"):
        raise refused("tool_choice", f"tool_choice {shortened(_json(told), 80)} cannot be forced: the policy decides "
                      "whether it calls a tool, so it takes auto or none")  # fmt: skip
    return tools and kind != "none"


def table(protocols: Sequence[Fields]) -> str:
    """The fields of all protocols as Markdown, for the documentation; an empty cell is a refusal."""
    rows = [
        " | ".join(["| field", *(f"`{one.path}`" for one in protocols), "why |"]),
        "|---" * (len(protocols) + 2) + "|",
    ]
    names = sorted({name for one in protocols for name in (*one.honoured, *one.idle, *one.limited)})
    for name in names:
        cells = [one.told(name) for one in protocols]
        why = {one.idle.get(name) or (one.limited[name].why if name in one.limited else "") for one in protocols}
        rows.append(" | ".join([f"| `{name}`", *cells, "; ".join(sorted(why - {""})) + " |"]))
    return "\n".join(rows)


def _same(told: Any, value: Any) -> bool:
    return told == value and isinstance(told, bool) == isinstance(value, bool)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return type(value).__name__
