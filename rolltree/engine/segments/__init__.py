"""Engines of other makers: what they write is taken down in segments, each by one call under one weight version."""

from rolltree.engine.segments.engine import SegmentEngine
from rolltree.engine.segments.several import SeveralBackends
from rolltree.engine.segments.wire import Backend, BrokenError, Piece, Reach, SegmentRead, SegmentRequest
from rolltree.engine.segments.writer import SegmentPatience

__all__ = [
    "Backend",
    "BrokenError",
    "Piece",
    "Reach",
    "SegmentEngine",
    "SegmentPatience",
    "SegmentRead",
    "SegmentRequest",
    "SeveralBackends",
]
