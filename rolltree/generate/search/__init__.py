"""Search = select × operator × backup over nodes, asynchronous with reservations.

`graph` holds the nodes, `loop` runs a plan, `select`, `queues` and `layers` say where to work next, `moves` and
`triggers` with which operator, `backup` what a result tells the nodes above it. None of them knows what a node stands
for: `attempts` (whole answers) and `steps` (pieces of one) put rollouts behind it.
"""

from rolltree.generate.search.backup import Backup, Blend, MeanBackup, no_backup
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, SearchPlan, search
from rolltree.generate.search.moves import Composed, Operate, only
from rolltree.generate.search.queues import BestFirst, Stack, Switch, TopK, flattest
from rolltree.generate.search.select import UCT, Descend, Ramp, Room, Select, up_to

__all__ = [
    "UCT", "Backup", "BestFirst", "Blend", "Composed", "Descend", "Made", "MeanBackup", "Moment", "Move", "Operate", "Ramp", "Room",
    "SearchGraph", "SearchNode", "SearchPlan", "Select", "Stack", "Switch", "TopK", "flattest", "no_backup", "only",
    "search", "up_to",
]  # fmt: skip
