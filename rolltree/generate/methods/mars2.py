"""Trees of attempts: every node is a complete answer, and its children are answers given with it in sight (MARS²).

An attempt is followed by another by asking again: a prompt node stands below the first answer, and what is written
below it is a rollout of its own, judged and limited by itself, with everything above as its context.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from rolltree.engine.protocol import Engine
from rolltree.generate.hand import Hand
from rolltree.generate.methods.mars2_thompson import Prior
from rolltree.generate.needs import NeedsError
from rolltree.generate.signals import features
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Attempts:
    """MARS²'s generator (arXiv 2604.14564): several policies answer in one tree, one attempt after the other.

    On the way down from the root each node draws, by Thompson sampling, whether to be answered anew (GEN) or through
    one of its children (CONT), which child, and, for a new attempt, by which agent. A new score counts for its agent,
    for GEN of its parent, for itself and every attempt above it, and for CONT one level above each of these. That an
    attempt's own score counts for itself is (reconstructed).
    """

    nodes: int = 8
    """Attempts per prompt, failed ones included."""
    agents: tuple[str, ...] = ("policy", "peer")
    """Actors; each writes with the engine of its name where the run has one, else with the run's own."""
    again: str = "{prompt}"
    """What is said after an attempt to get another one; {prompt}, {answer} and {score} stand for the item's prompt and
    the attempt's answer and score."""
    choose: Literal["thompson", "chance", "wide"] = "thompson"
    """"chance": GEN or CONT, child and agent by fair draws; "wide": always from the root, agents in turn."""
    prior: Prior = field(default_factory=Prior)
    record: frozenset[str] = frozenset()
    """Extras to record for the credit."""

    @property
    def want(self) -> frozenset[str]:
        """Extras recorded with every action."""
        return self.record

    @property
    def needs(self) -> frozenset[str]:
        """What is recorded."""
        return features(self.record)

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse environments: an attempt is one run of tokens, with one score."""
        if task.max_turns:
            raise NeedsError(
                f"trees of attempts need a task that is answered in one go, but {task.name!r} has an environment; "
                "choose one without turns, such as 'countdown'"
            )

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """One attempt after the other; prompts run side by side."""
        search = _TeamSearch(self, hand)
        for turn in range(self.nodes):
            if not await search.attempt(turn):
                return


class _TeamSearch:
    """Scores of one tree by what they tell about."""

    def __init__(self, knobs: Attempts, hand: Hand) -> None:
        self.knobs = knobs
        self.hand = hand
        self.agent: defaultdict[str, list[float]] = defaultdict(list)
        self.own: defaultdict[int, list[float]] = defaultdict(list)
        """Of an attempt and everything below it."""
        self.gen: defaultdict[int, list[float]] = defaultdict(list)
        self.cont: defaultdict[int, list[float]] = defaultdict(list)
        self.below: defaultdict[int, list[Node]] = defaultdict(list)
        """Scored attempts made at the root or with an attempt in sight, by its id."""
        self.above: dict[int, Node] = {}

    async def attempt(self, turn: int) -> bool:
        """Make and score one; False where the budget has ended."""
        place, agent = self.choose(turn)
        hand, root = self.hand.as_actor(agent), self.hand.tree.root
        start: Node | None = place
        if place is not root:
            if hand.budget.remaining("decoded") < 1 or hand.budget.remaining("prefilled") < 1:
                hand.event("budget", place, "nothing is left for another attempt")
                return False
            start = await hand.force(place, self.asks(place), role="prompt", birth="boundary", why="asked again")
        grown = [] if start is None else await hand.extend(start, want=self.knobs.want, why=f"an attempt by {agent}")
        if not grown:
            return False
        made = grown[0]
        if made.status == "done":
            await hand.verify(made)
        if made.status == "done" and "reward" in made.scores:
            self.learn(place, made, agent)
        return True

    def choose(self, turn: int) -> tuple[Node, str]:
        """Where the next attempt is made, and by whom."""
        rng = self.hand.rng.child("search", turn).generator()
        agents, root = self.knobs.agents, self.hand.tree.root
        if self.knobs.choose == "wide":
            return root, agents[turn % len(agents)]
        place, depth = root, 0
        while children := [child for child in self.below[place.id] if self.open(child)]:
            if self.pick((self.gen[place.id], self.cont[place.id]), rng) == 0:
                break
            place = children[self.pick([self.own[child.id] for child in children], rng)]
            depth += 1
        agent = agents[self.pick([self.agent[name] for name in agents], rng)]
        seen = {f"of {name}": float(np.mean(self.agent[name])) for name in agents if self.agent[name]}
        self.hand.event("select", place, f"{agent} answers at depth {depth}", agent=agent, depth=depth, **seen)
        return place, agent

    def pick(self, choices: Sequence[Sequence[float]], rng: np.random.Generator) -> int:
        """One of several, by their scores or by chance."""
        if self.knobs.choose == "chance":
            return int(rng.integers(len(choices)))
        return self.knobs.prior.best(choices, rng)

    def open(self, node: Node) -> bool:
        """Whether an attempt stands and another one fits below it."""
        hand = self.hand
        room = hand.engine.capabilities.max_context - hand.limit
        asked = len(hand.codec.encode(self.asks(node)))
        return node.status == "done" and len(hand.tree.prefix(node)) + asked <= room

    def asks(self, node: Node) -> str:
        """The text that asks for another attempt."""
        answer, score = node.notes.get("answer"), node.scores["reward"]
        prompt = self.hand.item.prompt
        return self.knobs.again.format(prompt=prompt, answer="" if answer is None else answer, score=f"{score:g}")

    def learn(self, place: Node, made: Node, agent: str) -> None:
        """Book a new attempt's score wherever it tells something."""
        score = made.scores["reward"]
        self.agent[agent].append(score)
        self.gen[place.id].append(score)
        self.below[place.id].append(made)
        self.above[made.id] = place
        self.own[made.id].append(score)
        here = place
        while here.id in self.above:
            self.own[here.id].append(score)
            here = self.above[here.id]
            self.cont[here.id].append(score)
