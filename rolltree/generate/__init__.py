"""How forests grow: the hand, strategies, and the runner that lets one grow the other."""

from rolltree.generate.answers import ItemError
from rolltree.generate.hand import Hand
from rolltree.generate.independent import Independent
from rolltree.generate.random import Stream
from rolltree.generate.runner import Progress, grow, open_hand
from rolltree.generate.setting import HandError, Patience
from rolltree.generate.strategy import NeedsError, SampleStrategy, TreeStrategy, check_needs, on_each
from rolltree.generate.turns import play, proceed

__all__ = [
    "Hand", "HandError", "Independent", "ItemError", "NeedsError", "Patience", "Progress", "SampleStrategy",
    "Stream", "TreeStrategy", "check_needs", "grow", "on_each", "open_hand", "play", "proceed",
]  # fmt: skip
