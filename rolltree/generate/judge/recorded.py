"""What a strategy records: what it wants, and where it has a judge, what that judge reads."""

from __future__ import annotations

from typing import Protocol

from rolltree.generate.judge.protocol import Judge
from rolltree.generate.signals import features


class _Wants(Protocol):
    @property
    def want(self) -> frozenset[str]: ...


class _Judges(Protocol):
    @property
    def judge(self) -> Judge: ...


class Recorded:
    """Of a strategy that names its extras (`want`): the engine's features behind them."""

    __slots__ = ()

    @property
    def needs(self: _Wants) -> frozenset[str]:
        """What is recorded."""
        return features(self.want)


class ReadsJudge(Recorded):
    """Of a strategy with one `judge`: it records what that reads."""

    __slots__ = ()

    @property
    def want(self: _Judges) -> frozenset[str]:
        """Extras that the judge reads."""
        return self.judge.want
