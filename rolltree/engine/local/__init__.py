"""The embedded engine: continuous batching in torch behind an asyncio front."""

from rolltree.engine.local.engine import LocalEngine

__all__ = ["LocalEngine"]
