"""MARS²: multi-agent reinforced tree search (arXiv 2604.14564)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.generate.methods.mars2 import Attempts
from rolltree.generate.methods.mars2_thompson import Prior
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Evidence, Parts, Peer, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class Mars2:
    """Two policies answer in one tree, each with the other's attempts in sight; every attempt is one sample.

    Both are trained, each on the attempts it wrote, with weights and optimizer of its own (`train_peer=False` keeps
    the second as it is). `peer` names its model, which must share the first one's tokenizer; by default it starts as a
    copy, so the two differ only by what they then learn. Attempts are shaped by parent and siblings and normalised
    over the tree. A token-level clip stands in for GSPO's sequence ratio: a path holds several attempts, and on fresh
    rollouts both have the same gradient. The overlong penalty is left out, since attempts end at the task's limit.
    An attempt below which nothing could be finished does not teach.
    """

    card: ClassVar[Card] = Card(
        "mars2", "Multi-agent reinforced tree search", "2604.14564", 2026,
        "up to 8.0 points pass@1 over single-agent baselines on code, for several pairs of models",
        ("generate", "control", "credit"), "gspo",
        Evidence("solve rate", "the better agent alone, best of 8", check="studies.searches:mars2", seeds=5),
    )  # fmt: skip
    nodes: int = 8
    """Attempts per prompt, failed ones included."""
    peer: str = ""
    """Model of the second policy: a name, a folder or a hub id; "" = a copy of the first."""
    train_peer: bool = True
    """Whether the second policy learns too."""
    again: str = "{prompt}"
    """What asks for another attempt: {prompt}, {answer} and {score} are filled in; ";" for countdown."""
    choose: Literal["thompson", "chance", "wide"] = "thompson"
    """"chance": GEN or CONT, child and agent by fair draws; "wide": always from the root, agents in turn."""
    prior: Literal["normal", "beta"] = "normal"
    """What is believed of a place before anything was tried there."""
    gamma: float = 0.3
    """γ of R + γ(R − b); 0 = no shaping, as in the released workflow, which loses the parent's index."""
    blend: float = 0.5
    """λ of b = (1 − λ) R_parent + λ mean of siblings."""
    in_place: bool = False
    """Shape in node order, so that children see shaped parents, as the released function does."""
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl: float = 1e-3
    sampling_rounds: int = 1

    def build(self) -> Parts:
        """A Thompson tree of attempts, shaped rewards over all of them, clipped and truncated importance weights."""
        check_group("mars2", self.nodes)
        if self.choose not in ("thompson", "chance", "wide"):
            raise RecipeError(f"mars2: choose={self.choose!r} is none of thompson, chance, wide")
        attempts = Attempts(self.nodes, again=self.again, choose=self.choose, prior=Prior(self.prior))
        return Parts(
            "mars2", attempts,
            load_credit("sibling_shaping", gamma=self.gamma, blend=self.blend, in_place=self.in_place),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high, kl=self.kl, correction="tis"),
            averaging="token", multiplicity="once", filters=(Mixed(of="attempts"),), rounds=self.sampling_rounds,
            peers={"peer": Peer(self.peer, self.train_peer)},
        )  # fmt: skip
