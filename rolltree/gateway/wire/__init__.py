"""The protocols that clients speak: each reads a body and writes answers, whole or as a stream of events."""

from rolltree.gateway.wire.anthropic import ANTHROPIC
from rolltree.gateway.wire.chat import CHAT
from rolltree.gateway.wire.completions import COMPLETIONS
from rolltree.gateway.wire.protocol import WireFormat
from rolltree.gateway.wire.responses import RESPONSES

WIRES: tuple[WireFormat, ...] = (CHAT, COMPLETIONS, RESPONSES, ANTHROPIC)
"""All of them."""

__all__ = ["WIRES", "WireFormat"]
