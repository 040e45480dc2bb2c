"""Speculative decoding: guess tokens ahead, read them in one forward pass, keep those that would have been drawn.

Every request draws with a stream of its own: the number that decides token n depends on the request and on n alone. So
the engine draws what it would have drawn anyway, from the logits of the same positions, and walks down the tree of
guesses for as long as the draw is among the guessed children. The tokens, and thus the sampling distribution, are those
of decoding one token at a time, up to the rounding of a wider matrix product, whatever guesses and however. For guesses
made without chance, no other rule keeps more of them.
"""

from rolltree.engine.local.speculate.spec import DRAFTERS, Speculation, Target
from rolltree.engine.local.speculate.speculator import SpeculationCounts, Speculator, why_no_trees

__all__ = ["DRAFTERS", "Speculation", "SpeculationCounts", "Speculator", "Target", "why_no_trees"]
