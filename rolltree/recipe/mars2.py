"""MARS²: multi-agent reinforced tree search (arXiv 2604.14564)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.groups import Mixed
from rolltree.generate.methods.mars2 import Attempts
from rolltree.generate.methods.mars2_thompson import Prior
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, RecipeError, check_group


@dataclass(frozen=True, slots=True)
class Mars2:
    """Two policies answer in one tree, each with the other's attempts in sight; every attempt is one sample.

    Both are trained, each on the attempts it wrote, with weights and optimizer of its own (`train_peer=False` keeps
    the second as it is). `peer` names its model, which must share the first one's tokenizer; by default it starts as a
    copy, so the two differ only by what they then learn. Attempts are shaped by parent and siblings and normalised
    over the tree. The ratio is that of an attempt as a whole (GSPO); `ratio="token"` clips each token. What asks for
    another attempt says what the one above scored and states the problem again; the wording is ours. The overlong
    penalty is left out, since attempts end at the task's limit. An attempt has all attempts above it in its context,
    where the paper's has its parent alone. An attempt below which nothing could be finished does not teach. The events
    "answers at depth" say where the search went.
    """

    card: ClassVar[Card] = Card(
        "mars2", "Multi-agent reinforced tree search", "2604.14564", 2026,
        "up to 8.0 points pass@1 over single-agent baselines on code, for several pairs of models",
        ("generate", "control", "credit"), "gspo",
        Evidence("solve rate", "the better agent alone, best of 8", check="studies.searches:mars2", seeds=5),
        counter=Counter("rollout/births/boundary"),
    )  # fmt: skip
    nodes: int = 8
    """Attempts per prompt, failed ones included."""
    peer: str = ""
    """Model of the second policy: a name, a folder or a hub id; "" = a copy of the first."""
    train_peer: bool = True
    """Whether the second policy learns too."""
    again: str = "\n[{score}] {prompt}"
    """What asks for another attempt: {prompt}, {answer} and {score} are filled in."""
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
    ratio: Literal["sequence", "token"] = "sequence"
    """Whether the clip bounds the ratio of an attempt as a whole or of each token."""
    updates: int = 8
    """Updates of a step: the paper's batch of 128 goes in mini-batches of 16."""
    clip_low: float = 0.0
    clip_high: float = 0.0
    """Bounds of the ratio's clip; 0 = 3e-4 and 4e-4 for sequences (GSPO's), 0.2 for tokens."""
    kl: float = 1e-3
    sampling_rounds: int = 1

    def build(self) -> Parts:
        """A Thompson tree of attempts, shaped rewards over all of them, clipped and truncated importance weights."""
        check_group("mars2", self.nodes)
        if self.choose not in ("thompson", "chance", "wide"):
            raise RecipeError(f"mars2: choose={self.choose!r} is none of thompson, chance, wide")
        if self.ratio not in ("sequence", "token"):
            raise RecipeError(f"mars2: ratio={self.ratio!r} is neither 'sequence' nor 'token'")
        sequence = self.ratio == "sequence"
        low, high = self.clip_low or (3e-4 if sequence else 0.2), self.clip_high or (4e-4 if sequence else 0.2)
        attempts = Attempts(self.nodes, again=self.again, choose=self.choose, prior=Prior(self.prior))
        return Parts(
            "mars2", attempts,
            load_credit("sibling_shaping", gamma=self.gamma, blend=self.blend, in_place=self.in_place),
            load_objective(
                "gspo" if sequence else "clipped", clip_low=low, clip_high=high, kl=self.kl, correction="tis"
            ),
            averaging="sequence" if sequence else "token", multiplicity="once", unit="attempt",
            filters=(Mixed(of="attempts"),), rounds=self.sampling_rounds,
            peers={"peer": Peer(self.peer, self.train_peer)}, optim={"minibatches": self.updates},
        )  # fmt: skip
