"""The protocols that clients speak: each reads a body and writes answers, whole or as a stream of events."""

from collections.abc import Collection
from typing import Any

from rolltree.gateway.ask import Ask
from rolltree.gateway.session import Draw
from rolltree.gateway.wire.anthropic import ANTHROPIC
from rolltree.gateway.wire.chat import CHAT
from rolltree.gateway.wire.completions import COMPLETIONS
from rolltree.gateway.wire.protocol import Body, WireFormat
from rolltree.gateway.wire.responses import RESPONSES

WIRES: tuple[WireFormat, ...] = (CHAT, COMPLETIONS, RESPONSES, ANTHROPIC)
"""All of them."""


def understood(
    wire: WireFormat, body: Body, limit: int, ignored: Collection[str] = ()
) -> tuple[dict[str, Any], Ask, Draw]:
    """What a body asks, and the body without the fields that are ignored. A field that is not served is refused."""
    kept = {name: value for name, value in body.items() if name not in ignored}
    wire.fields.check(kept)
    return kept, *wire.read(kept, limit)


__all__ = ["WIRES", "WireFormat", "understood"]
