"""ReEx-SQL: reasoning with execution-aware reinforcement learning for text-to-SQL (arXiv 2505.12768)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.errors import RolltreeError
from rolltree.filter.groups import live_leaves
from rolltree.generate.forkall import ForkAll, like_results
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree import Node, Tree

# Rewards for how a query was worked out: ReEx-SQL's five parts (arXiv 2505.12768).


class PartError(RolltreeError, LookupError):
    """A part of a reward that the task does not measure; names it and the way out."""


@dataclass(frozen=True, slots=True)
class Executed:
    """The outcome becomes the weighted mean of five parts between 0 and 1.

    `format`: the policy ended the episode by itself. `execution`: the verifier's word. `exact` and `entities`: parts
    that the task measures (`sql` does). `exploration` (reconstructed): of the calls made on the way, the share that
    worked and brought something new, and 0 without the format. A result seen before on the path pays nothing, so
    repeating an easy call lowers the share. The paper's maxima are 2, 3, 1, 1 and 2.
    """

    format: float = 2.0
    execution: float = 3.0
    exact: float = 1.0
    entities: float = 1.0
    exploration: float = 2.0

    @property
    def needs(self) -> frozenset[str]:
        """The parts that weigh something."""
        return frozenset(f"part:{name}" for name, weight in self._measured if weight)

    def __call__(self, tree: Tree, limit: int) -> None:
        """Shape every live leaf, with each part on record; idempotent. `limit` is not used."""
        for leaf in live_leaves(tree):
            outcome = leaf.scores.setdefault("outcome", leaf.scores["reward"])
            ended = float(leaf.role == "env" and leaf.finish == "stop")
            explored = ended * self._novel(tree, leaf)
            leaf.scores["format"], leaf.scores["exploration"] = ended, explored
            parts = ((self.format, ended), (self.execution, outcome), (self.exploration, explored))
            parts += tuple((weight, self._part(tree, leaf, name)) for name, weight in self._measured if weight)
            leaf.scores["reward"] = sum(w * value for w, value in parts) / sum(w for w, _ in parts)

    @property
    def _measured(self) -> tuple[tuple[str, float], ...]:
        return ("exact", self.exact), ("entities", self.entities)

    def _novel(self, tree: Tree, leaf: Node) -> float:
        """Share of the calls before the last word that worked and gave a result not seen before on the path."""
        seen: set[bytes] = set()
        calls = [n for n in tree.path(leaf) if n.role == "env" and n is not leaf]
        for call in calls:
            if not call.notes.get("failed"):
                seen.add(call.actions.tobytes())
        return len(seen) / len(calls) if calls else 0.0

    def _part(self, tree: Tree, leaf: Node, name: str) -> float:
        if name not in leaf.scores:
            raise PartError(
                f"leaf {leaf.id} of tree {tree.id!r} has no part {name!r}: the task {tree.task!r} does not measure it; "
                f"set {name}=0, or choose sql"
            )
        return leaf.scores[name]


@dataclass(frozen=True, slots=True)
class ReExSql:
    """Queries are executed while the answer is being written, and the reward pays for finding out.

    A rollout stops at each query, reads its result or its error, and goes on; results are never trained on. The reward
    has five parts (`rolltree_papers.reex_sql.Executed`; 0 leaves one out); group credit and a clipped
    surrogate do the rest. No code was released: the exploration term, the overlap of schema items and tree decoding
    are (reconstructed). `decode="tree"` is for a frozen policy: each path goes on `ways` ways after each result,
    siblings that saw the same result are merged, and up to `width` paths live; the answer, in the tree's notes, is the
    majority of `group` leaves. A merged sibling has no vote, so the majority is over different ways and not over
    samples. The embedded policy asks once and submits what it asked, so its evidence is about the five-part reward
    rather than about finding out.
    """

    card: ClassVar[Card] = Card(
        "reex_sql", "ReEx-SQL", "2505.12768", 2025,
        "88.8 % on Spider and 64.9 % on BIRD dev with 7B, 2.7 and 2.6 points over plain reasoning; tree decoding takes "
        "51.9 % off the inference time",
        ("generate", "filter"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:sql", seeds=6),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    decode: Literal["linear", "tree"] = "linear"
    """"linear" for training, "tree" for a frozen policy."""
    ways: int = 2
    width: int = 4
    """Paths that live at once in tree decoding."""
    format: float = 2.0
    """Weight of the answer's form in the reward."""
    execution: float = 3.0
    """Weight of a right result: on the database and on a second one, where the verifier has one."""
    exact: float = 1.0
    """Weight of the very words of the reference query."""
    entities: float = 1.0
    """Weight of the overlap of schema items."""
    exploration: float = 2.0
    """Weight of finding out by queries."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Rollouts with execution inside, five-part reward, GRPO's credit and objective."""
        check_group("reex_sql", self.group)
        tree = ForkAll(like_results, self.group, self.ways, self.width, same=1.0, decides=True)
        return Parts(
            "reex_sql", tree if self.decode == "tree" else Independent(self.group, needs=frozenset({"turns"})),
            load_credit("grpo"), load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl),
            averaging="sequence",
            shapers=(Executed(self.format, self.execution, self.exact, self.entities, self.exploration),),
        )  # fmt: skip
