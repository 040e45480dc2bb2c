"""Role calls: another role, or another model, writes about nodes in a side tree of the same forest.

A side tree has a brief as its prompt, in the chat template of the model that reads it where it has one. It has a budget
inside the asking hand's that is also counted in the role's book, and streams of randomness of its own: what a role says
depends on what it is asked, never on when. Asking the same again writes further answers into the same tree. Side trees
are no rollouts: nothing verifies them unless they are answers to an item (`item=`), and no strategy grows them on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rolltree.control.brief import Brief, source_of
from rolltree.generate.random import lineage, mix
from rolltree.generate.setting import HandError
from rolltree.generate.spoken import laid_out, spoken_brief
from rolltree.task.data.chat import chat_of
from rolltree.task.items import SingleTurn
from rolltree.task.protocol import Item, Split, Verdict
from rolltree.task.spoken import Speaker, Spoken
from rolltree.tree import Node, Tree

if TYPE_CHECKING:
    from rolltree.generate.hand import Hand

ROLE, ABOUT, SLOTS = "role", "about", "slots"
"""Keys in a side tree's notes: who speaks, about which nodes ("tree/node"), and where the slots of its brief stand."""
ANSWER_TOKENS = 64
"""Most tokens of a role's answer, unless it is told otherwise."""


@dataclass(frozen=True, slots=True)
class RoleTask(SingleTurn):
    """What a role is asked: it has no items and no verifier, only an end."""

    name: str
    stop: tuple[str, ...] = ()
    max_tokens: int = ANSWER_TOKENS
    level: int = 0
    max_turns: int = 0

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """None: a role is asked by a strategy."""
        return iter(())

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Refused: what a role says is not an answer to the item."""
        raise HandError(
            f"nothing says whether role {self.name!r} is right; ask it with item= if it answers the item itself"
        )


def is_side(tree: Tree) -> bool:
    """Whether a tree holds what a role said."""
    return ROLE in tree.notes


def speaker_of(hand: Hand, role: str) -> Speaker | None:
    """The chat template that a role is asked in: of its own model, or of the run's where the task is asked in it."""
    own = hand.setting.roles.get(role)
    if own is not None:
        return template_of(getattr(own.codec, "tokenizer", None))
    item = hand.setting.items.get(hand.tree.id)
    return item.prompt.speaker.bare if item is not None and isinstance(item.prompt, Spoken) else None


@lru_cache(maxsize=32)
def template_of(tokenizer: Any) -> Speaker | None:
    """A tokenizer's checked chat template, bare; None where it has none."""
    return chat_of(tokenizer, "")


def _asked(item: Item | None, speaker: Speaker | None) -> Any:
    """What a role's brief stands beside: the item as its reader hears it, or nothing."""
    if item is None:
        return "" if speaker is None else speaker.prompt("")
    prompt = item.prompt
    if not isinstance(prompt, Spoken):
        return prompt
    if speaker is None:
        return prompt.question
    return prompt if speaker == prompt.speaker.bare else prompt.spoken_by(speaker)


@dataclass(frozen=True, slots=True)
class About:
    """What an answer is about: a node of some tree."""

    tree: Tree
    node: Node

    @property
    def name(self) -> str:
        """As a slot names its sources."""
        return source_of(self.tree.id, self.node.id)


@dataclass(frozen=True, slots=True)
class RoleAnswer(About):
    """An answer of a role: the node that holds it, and its text."""

    text: str


def plant_side(
    hand: Hand, role: str, brief: Brief, about: Sequence[Node | About], item: Item | None, task: RoleTask, turn: int = 0
) -> Tree:
    """The side tree of this question, planted unless it stands already."""
    seen = [node if isinstance(node, About) else About(hand.tree, node) for node in about]
    setting, above = hand.setting, hand.tree.id
    if item is None and not brief.text:
        raise HandError(f"role {role!r} is asked nothing: its brief is empty; put a text into a slot")
    speaker = speaker_of(hand, role)
    prompt = _asked(item, speaker)
    if item is None and speaker is not None and speaker.ends:
        task = replace(task, stop=(*task.stop, speaker.ends))
    # Node ids tell in which order nodes were made; a name must not.
    places = [mix(a.tree.id, lineage(a.tree, a.node), len(a.tree.prefix(a.node))) for a in seen]
    key = mix(role, spoken_brief(brief, prompt), *places, task.max_tokens, *task.stop, turn)
    name = f"{above}/{role}-{key & 0xFFFFFFFF:08x}"
    if name in hand.forest:
        return hand.forest[name]
    codec = hand.as_actor(role).codec
    given = prompt if isinstance(prompt, Spoken) else codec.encode(prompt) if prompt else ()
    laid = laid_out(brief, codec.encode, given)
    tree = hand.forest.plant(name, laid.ids, task=hand.setting.task.name if item is not None else role)
    tree.notes |= {ROLE: role, ABOUT: [a.name for a in seen], SLOTS: brief.noted(laid)}
    setting.items[name] = item or Item(name, spoken_brief(brief, prompt), None)
    if item is None:
        setting.side_tasks[name] = task
    setting.tree_budgets[name] = hand.budget.for_role(role, rollouts=item is not None)
    return tree
