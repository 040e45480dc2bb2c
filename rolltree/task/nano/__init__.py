"""Seven small verifiable tasks for a character policy, each with levels and an expert that can play it."""

from rolltree.task.nano.arithmetic import Arithmetic
from rolltree.task.nano.calculator import Calculator
from rolltree.task.nano.countdown import Countdown
from rolltree.task.nano.expert import NanoTask, Transcript, play, solve
from rolltree.task.nano.grid import Grid
from rolltree.task.nano.lookup import Lookup
from rolltree.task.nano.records import Records
from rolltree.task.nano.sql import Sql

__all__ = [
    "Arithmetic",
    "Calculator",
    "Countdown",
    "Grid",
    "Lookup",
    "NanoTask",
    "Records",
    "Sql",
    "Transcript",
    "play",
    "solve",
]
