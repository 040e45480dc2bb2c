"""CodeTree over whole answers: a thinker's strategies and reflections, a policy's answers, a critic's grades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rolltree.control.brief import brief
from rolltree.engine.protocol import Engine
from rolltree.generate.decide import decide, grades
from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.judge.recorded import Recorded
from rolltree.generate.methods.codetree import CodeTree, CodeTreeRules, written
from rolltree.generate.needs import refuse_environment
from rolltree.generate.search.attempts import attempt, said, score_of
from rolltree.generate.search.graph import Made, Move, SearchGraph, SearchNode
from rolltree.generate.search.loop import search, streams
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree


@dataclass(frozen=True, slots=True)
class Draft:
    """What is to be written, and the answer once it stands."""

    says: str
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class CodeTreeTexts:
    """What is asked. {prompt} everywhere; {says} is the strategy or reflection, {answer} and {score} the solution's."""

    plan: str = ""
    """Asks the thinker for strategies, one a line; "" = `ways` of them that say nothing."""
    solve: str = ""
    """Asks for an answer by a strategy; "" = the item's prompt alone."""
    reflect: str = ""
    """Asks the thinker what to change, one idea a line; "" = one that says nothing."""
    debug: str = "\n[{score}] {prompt}"
    """Asks again below an answer."""


@dataclass(frozen=True, slots=True)
class CodeTreeAnswers(Recorded):
    """Writes up to `generations` answers; thinker and critic are paid from the same budget.

    The answer is the accepted one, else the best seen, where the released code takes the last failing one.
    """

    generations: int = 20
    rules: CodeTreeRules = field(default_factory=CodeTreeRules)
    texts: CodeTreeTexts = field(default_factory=CodeTreeTexts)
    tests: Judge = field(default_factory=Confidence)
    """Share of the visible tests that an answer passes."""
    critic: Judge = field(default_factory=Confidence)

    @property
    def want(self) -> frozenset[str]:
        """Extras that the judges read."""
        return self.tests.want | self.critic.want

    def check(self, engine: Engine, task: Task) -> None:
        """Refuse environments: an answer is one run of tokens, with one score."""
        refuse_environment(task)

    async def grow_tree(self, tree: Tree, hand: Hand) -> None:
        """Search, then choose."""
        plan = CodeTree(self.rules, _Roles(self, hand))
        graph: SearchGraph[Draft] = SearchGraph(Draft("", tree.root))
        await search(
            plan, graph, plan.make, turns=self.generations + 1,
            rng=streams(hand),
        )  # fmt: skip
        found = [plan.accepted] if plan.accepted else written(graph)
        standing = [n.payload.node for n in found if n.payload.node is not None and n.payload.node.status == "done"]
        decide(hand, standing, "best")


class _Roles:
    """Who writes what on a tree."""

    def __init__(self, knobs: CodeTreeAnswers, hand: Hand) -> None:
        self.knobs = knobs
        self.hand = hand

    async def strategies(self, most: int) -> Sequence[Draft] | None:
        return await self._ideas(self.knobs.texts.plan, None, most, most)

    async def reflect(self, made: Made[Draft], most: int) -> Sequence[Draft]:
        return await self._ideas(self.knobs.texts.reflect, made, most, 1) or ()

    async def _ideas(self, text: str, made: Made[Draft] | None, most: int, silent: int) -> list[Draft] | None:
        asked = text.format(prompt=self.hand.item.prompt, **_about(made))
        if not asked:
            return [Draft("")] * silent
        node = None if made is None else made.payload.node
        answers = await self.hand.ask("thinker", brief(asked), about=[] if node is None else [node])
        lines = [line for answer in answers for line in answer.text.splitlines() if line.strip()]
        return [Draft(line) for line in lines[:most]] if answers else None

    async def write(self, node: SearchNode[Draft]) -> Made[Draft] | None:
        texts, above = self.knobs.texts, node.parent
        assert above is not None
        assert above.payload.node is not None
        text = texts.solve if node.depth == 1 else texts.debug
        told = Made(above.payload, above.value)
        asked = text.format(prompt=self.hand.item.prompt, says=node.payload.says, **_about(told)) if text else ""
        operator = "solve" if node.depth == 1 else "debug"
        self.hand.event("select", above.payload.node, f"{operator} at depth {node.depth}", operator=operator)
        move = Move(SearchNode(-1, None, above.payload.node), operator)
        grown = await attempt(self.hand, move, lambda hand, move: asked, want=self.knobs.want)
        if grown is None:
            return None
        if not grown or grown[0].value is None:
            return Made(node.payload, None, cost=sum(one.cost for one in grown))
        answer = grown[0].payload
        passed = min(max((await grades(self.hand, self.knobs.tests, [answer]))[0], 0.0), 1.0)
        answer.scores["value"] = passed
        return replace(Made(node.payload, passed), payload=Draft(node.payload.says, answer), cost=len(answer))

    async def review(self, made: Made[Draft]) -> float:
        node = made.payload.node
        return 0.0 if node is None else (await grades(self.hand, self.knobs.critic, [node]))[0]


def _about(made: Made[Draft] | None) -> dict[str, str]:
    node = None if made is None else made.payload.node
    if made is None or node is None or node.parent is None:
        return {"answer": "", "score": ""}
    told = SearchNode(-1, None, node, value=node.scores.get("value"))
    return {"answer": said(told), "score": score_of(told)}
