"""MedS³: small language models with self-evolved slow thinking (arXiv 2501.12051)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.generate.methods.meds3 import SlowThinking
from rolltree.generate.search.backup import Blend
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, RecipeError
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class MedS3:
    """Trees of Reason, Finish and Reflect whose right paths and step values are data for the next policy and a PRM.

    `rolltree solve meds3 --items-from train --out runs/meds3` grows them, and `rolltree labels` makes rows of them. It
    asks the verifier while it searches, so it makes data and is no way to answer. Reconstructed: the policy reasons or
    finishes by what it writes, where the paper's names its action first; a direct answer is a rollout of the same
    policy (the paper asks for the answer alone); an answer of several steps is one node, so the cap on nodes stays (the
    released cap grows with it); new nodes are valued at once, so unvisited ones need no value; the text that asks for a
    revision is ours. Left out: training the policy and the PRM.
    """

    card: ClassVar[Card] = Card(
        "meds3", "MedS³ (slow thinking of small models)", "2501.12051", 2025,
        "+2 points over prior open models on 11 medical sets by self-evolved search, about 13 with PRM selection",
        ("generate", "filter"), "step_labels",
        Evidence("rank correlation of step values with exact ones", "shares of right independent rollouts, same tokens",
                 "higher", 0.05, seeds=5, check="studies.search.slow:values"),
        counter=Counter("rollout/births/resample"),
    )  # fmt: skip
    ways: int = 3
    """Steps tried at a node."""
    nodes: int = 60
    """Most nodes of the search."""
    right: int = 4
    """Right answers that end it."""
    samples: int = 20
    """Direct answers from the root; ⌊samples/(depth + 1)⌋ from a node."""
    least: int = 5
    """Fewest direct answers from a node."""
    sure: float = 0.9
    """Value from which a node is finished at once."""
    exploration: float = 2.0
    """c of UCT."""
    step: int = 16
    """Most tokens of a step."""
    delimiter: str = ","
    """What ends a step, besides the task's own stop strings; "" = nothing. In an environment a step is a turn."""
    reflect: str = "{prompt}"
    """What is asked behind a wrong answer; it may name {prompt} and {answer}. "" = nothing is revised."""
    backup: Literal["comp", "children"] = "comp"
    """Half way from the old value to the weighted mean of the children ("comp"), or all the way."""

    def build(self) -> Parts:
        """The search, with group credit for those who train on its leaves."""
        shares = {"comp": 0.5, "children": 1.0}
        if self.backup not in shares:
            raise RecipeError(f"meds3: backup={self.backup!r} is none of {', '.join(shares)}")
        for name in ("ways", "nodes", "right", "least"):
            if getattr(self, name) < 1:
                raise RecipeError(f"meds3: {name}={getattr(self, name)} grows nothing; give 1 or more")
        return search_parts(
            "meds3",
            SlowThinking(
                self.ways, self.nodes, self.right, self.samples, self.least, self.sure, self.exploration, self.step,
                self.delimiter, self.reflect, Blend(shares[self.backup]),
            ),
        )  # fmt: skip
