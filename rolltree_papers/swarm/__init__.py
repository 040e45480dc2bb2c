"""SAPO's swarm: nodes that learn from one another's published rollouts (arXiv 2509.08721)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from rolltree.control.order import ControlError, Delivery, Order, Written
from rolltree.control.plan import Nothing, Plan, Step
from rolltree.credit.registry import load_credit
from rolltree.filter.groups import GroupFilter, Mixed
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.task.protocol import Item
from rolltree.tree import Tree
from rolltree.tree.store.atomic import naming
from rolltree.tree.store.values import dumps, loads

# Rollouts that others publish as text, beside one's own (the swarm of SAPO).

FOREIGN = "foreign"
"""Arm of the rollouts that others wrote."""
PUBLISHED = ".swarm.jsonl"
"""How a node's file ends; the folder may be a run's own, which has other JSON lines."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """A share of each step's groups is what others published; the rest is asked here and published.

    Published are questions with their answers and what was said, turn by turn, as text: no tokens, log-probs or
    rewards. Foreign text is encoded, answered and judged here, its log-prob read under the policy of here, and a group
    is taken whole. Groups without variance are replaced by others as long as there are any; where there are none, own
    prompts take their places (the recipe's filter leaves them out of the batch). An answer key is the publisher's: what
    it lies about there is believed.

    `folder` is shared by all nodes; each writes `NAME.swarm.jsonl` in it and reads the others' when a step begins. What
    stands there depends on the clock, so steps cannot overlap, and a run that is resumed meets what is there by then.
    """

    name: ClassVar[str] = "swarm"
    paper: ClassVar[str] = "2509.08721"
    needs: ClassVar[frozenset[str]] = frozenset()
    folder: str = "runs/published"
    """Where nodes publish."""
    node: str = "node"
    """The name of this one."""
    foreign: float = 0.5
    """Share of a step's groups that others wrote."""
    newest: int = 4
    """Steps of each other node that are still read."""
    tries: int = 4
    """Rounds of foreign groups, while those that came have no variance."""

    def __post_init__(self) -> None:
        if not 0 <= self.foreign < 1 or self.newest < 1 or self.tries < 1:
            raise ControlError(
                f"swarm: foreign={self.foreign} must be a share below 1, and newest={self.newest} and "
                f"tries={self.tries} at least 1"
            )
        if not self.node or set(self.node) & set("/\\"):
            raise ControlError(f"swarm: node={self.node!r} names no file; give a plain name")

    def start(self) -> Nothing:
        """What others said stands in the folder."""
        return Nothing()

    def plan(self, step: Step, state: Nothing) -> Plan:
        """Foreign groups first, then own prompts in the places that are left; these are published."""
        wanted, pool = round(self.foreign * step.prompts), self._published()
        taken = 0
        for _ in range(self.tries):
            missing = min(wanted - taken, len(pool))
            if missing <= 0:
                break
            chosen = [pool.pop(int(step.rng.integers(len(pool)))) for _ in range(missing)]
            prompts = step.prompts_of([item for item, _ in chosen])
            delivered = yield [
                Order(prompt, arm=FOREIGN, given=rollouts, last=True, why="written by another node")
                for prompt, (_, rollouts) in zip(prompts, chosen, strict=True)
            ]  # fmt: skip
            taken += sum(d.kept and len(set(d.rewards)) > 1 for d in delivered)
        own = yield [Order(prompt, texts=True, last=True) for prompt in step.take(max(step.prompts - taken, 1))]
        self._publish(step.number, own)

    def _publish(self, step: int, delivered: Sequence[Delivery]) -> None:
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        lines = list[str]()
        for d in delivered:
            item, said = d.order.prompt.item, [w.turns for w in d.written if w is not None]
            if isinstance(item.prompt, str) and len(said) > 1:
                made = {"step": step, "place": d.order.prompt.place, "id": item.id, "prompt": item.prompt,
                        "answer": item.answer, "level": item.level, "meta": dict(item.meta), "said": said}  # fmt: skip
                lines.append(dumps(made) + "\n")
        place = folder / f"{self.node}{PUBLISHED}"
        with naming(place), place.open("a", encoding="utf-8") as out:
            out.write("".join(lines))

    def _published(self) -> list[tuple[Item, tuple[Written, ...]]]:
        """Groups of the other nodes' newest steps; of one that was published twice the later."""
        found: dict[tuple[str, int, int], tuple[Item, tuple[Written, ...]]] = {}
        for path in sorted(Path(self.folder).glob(f"*{PUBLISHED}")):
            name = path.name.removesuffix(PUBLISHED)
            if name == self.node:
                continue
            whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")  # the last line may still be written
            made = [_read(path, line) for line in whole.splitlines() if line]
            last = max((m["step"] for m in made), default=0)
            for m in made:
                if m["step"] > last - self.newest:
                    item = Item(f"{m['id']}@{name}", m["prompt"], m["answer"], m["level"], m["meta"])
                    found[name, m["step"], m["place"]] = item, tuple(Written(tuple(t)) for t in m["said"])
        return [found[key] for key in sorted(found)]


def _read(path: Path, line: str) -> dict[str, Any]:
    try:
        made: dict[str, Any] = loads(line)
        _ = made["step"], made["place"], made["id"], made["prompt"], made["answer"], made["said"]
    except (ValueError, KeyError, TypeError) as error:
        raise ControlError(
            f"{path} holds a line that is no published group ({type(error).__name__}); take the file out of the folder"
        ) from None
    return made


# A group filter for the groups of one arm of the control alone.


@dataclass(frozen=True, slots=True)
class OfArm:
    """Asks `inner` about groups that have rollouts of `arm`, and keeps the others."""

    arm: str
    inner: GroupFilter

    def __call__(self, tree: Tree) -> str | None:
        """The inner filter's reason, where it is asked."""
        return self.inner(tree) if any(leaf.notes.get("arm") == self.arm for leaf in tree.leaves()) else None


@dataclass(frozen=True, slots=True)
class SwarmRecipe:
    """GRPO on own groups and on groups that other nodes published as text, half and half.

    Foreign text is encoded, judged and scored here, and treated as if this policy had written it: its ratio is one at
    the first update by construction: a clipped policy gradient on off-policy text without a weight, as published. Nodes
    are runs of `rolltree train swarm` that share `folder`, each with a `node` name of its own; they may have other
    models and tokenizers, and none waits for another (the released code waits up to ten minutes). A foreign group may
    be drawn again as long as it is read (`newest` steps of the control), and published answer keys are believed. This
    method and the soft objective `soft_sapo` share nothing but four letters. The evidence is tabular: four nodes that
    know two of eight tasks each, against the same nodes with groups of their own past in the others' places.
    """

    card: ClassVar[Card] = Card(
        "swarm", "Swarm sampling policy optimisation", "2509.08721", 2025,
        "cumulative reward 1,093 with four own and four foreign groups, 562 with eight own (8 x Qwen2.5-0.5B)",
        ("replay", "control"), "grpo",
        Evidence("mean reward of four nodes over the run", "the same nodes alone, the better of new and past groups",
                 "higher", 0.02, seeds=5, check="rolltree_papers.swarm.study:swarm"),
        counter=Counter("budget/arm/foreign"),
    )  # fmt: skip
    group: int = 8
    folder: str = "runs/published"
    """Where nodes publish."""
    node: str = "node"
    """The name of this one."""
    foreign: float = 0.5
    """Share of a step's groups that others wrote; at 0.75 the paper's nodes swing and forget."""
    clip_low: float = 0.2
    clip_high: float = 0.28

    def build(self) -> Parts:
        """Independent rollouts beside foreign ones, group credit, asymmetric clip, no KL."""
        check_group("swarm", self.group)
        return Parts(
            "swarm", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high), averaging="sequence",
            control=Swarm(self.folder, self.node, self.foreign), filters=(OfArm(FOREIGN, Mixed()),),
        )  # fmt: skip
