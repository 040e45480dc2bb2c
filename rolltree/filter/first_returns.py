"""Groups whose rollouts differ in what their first turn led to (UI-S1, arXiv 2509.11543)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class FirstReturns:
    """Keeps a task where the standard deviation over rollouts of the first turn's return exceeds `least`.

    The return is the one that semi-online credit compares: rewards of turns, the environment's among them, discounted,
    up to the first turn that left the demonstration. A patched rollout is therefore counted to its patch.
    """

    least: float = 0.3
    gamma: float = 0.5

    def __call__(self, tree: Tree) -> str | None:
        """Why the task's rollouts are too much alike; None keeps them."""
        returns = [self._return(tree, turn) for turn in tree.children(tree.root) if "match" in turn.scores]
        if len(returns) < 2:
            return f"{len(returns)} rollouts to compare"
        spread = float(np.std(returns))
        if spread > self.least:
            return None
        return f"returns of the first turn have a standard deviation of {spread:.2f}, not above {self.least:g}"

    def _return(self, tree: Tree, turn: Node) -> float:
        answers = tree.children(turn)
        own = sum(node.scores.get("step_reward", 0.0) for node in (turn, *answers))
        if turn.scores["match"] <= 0.5:
            return own
        after = (later for answer in answers for later in tree.children(answer) if "match" in later.scores)
        later = next(after, None)
        return own + (0.0 if later is None else self.gamma * self._return(tree, later))
