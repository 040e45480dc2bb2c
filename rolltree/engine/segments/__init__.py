"""Engines of other makers: what they write is taken down in segments, each by one call under one weight version."""

from rolltree.engine.segments.engine import SegmentEngine
from rolltree.engine.segments.wire import Ask, Backend, BrokenError, Piece, Reach, Read
from rolltree.engine.segments.writer import Patience

__all__ = ["Ask", "Backend", "BrokenError", "Patience", "Piece", "Reach", "Read", "SegmentEngine"]
