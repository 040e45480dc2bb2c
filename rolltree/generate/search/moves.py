"""Which operator is applied at a node that was selected, and with which other nodes in sight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rolltree.generate.search.backup import Backup, no_backup
from rolltree.generate.search.graph import Move, SearchNode
from rolltree.generate.search.loop import Moment
from rolltree.generate.search.select import Select


class Operate(Protocol):
    """Chooses the operator at a node."""

    def __call__(self, node: SearchNode[Any], moment: Moment[Any]) -> Move[Any]:
        """What is to be made there."""
        ...


def only(operator: str, ways: int = 1) -> Operate:
    """The same operator everywhere."""
    return lambda node, moment: Move(node, operator, ways=ways)


@dataclass(frozen=True, slots=True)
class ComposedMove:
    """A plan of three parts, one move a turn."""

    select: Select
    operate: Operate
    backup: Backup = no_backup

    def moves(self, moment: Moment[Any]) -> Sequence[Move[Any]]:
        """As of `SearchPlan`."""
        node = self.select(moment)
        return [] if node is None else [self.operate(node, moment)]
