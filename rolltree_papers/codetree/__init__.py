"""CodeTree: agent-guided tree search over strategies, solutions and reflections (arXiv 2411.04329)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol

from rolltree.control.brief import brief
from rolltree.engine.protocol import Engine
from rolltree.generate.choose import decide, grades
from rolltree.generate.hand import Hand
from rolltree.generate.judge.measured import Confidence
from rolltree.generate.judge.protocol import Judge, Recorded
from rolltree.generate.search.attempts import attempt, said, score_of
from rolltree.generate.search.graph import TRIED, Made, Move, P, SearchGraph, SearchNode
from rolltree.generate.search.loop import Moment, search, streams
from rolltree.generate.search.queues import Stack
from rolltree.generate.search.select import untried
from rolltree.generate.search.steps import judge_of
from rolltree.generate.strategy import refuse_environment
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts
from rolltree.task.protocol import Task
from rolltree.tree import Node, Tree

# CodeTree: strategies, solutions and reflections on one stack, pruned by tests and a critic (arXiv 2411.04329).
#
# The rules know nothing of programs: `rolltree_papers.codetree` puts answers of a policy behind them, the authors'
# study (`rolltree_papers.codetree.study`) an editor whose chances are known. They follow the released agent mode, step
# by step; its breadth-first mode is left out.

MOST = 5
"""The critic's best score; the released value of code that passes and is not accepted is 1 + 5/15."""


@dataclass(frozen=True, slots=True)
class CodeTreeRules:
    """Knobs of the search."""

    ways: int = 10
    """W: most strategies, and most reflections on one solution."""
    depth: int = 3
    """D: solutions on one line, the first one included."""
    accept: float = 0.5
    """Least grade by which the critic accepts what passes all visible tests."""
    critic: bool = True
    """Whether the critic scores what fails tests; without it a value is the share of tests passed."""
    prune: bool = True
    """Whether a line is given up where its value falls behind its parent's."""


class Coder(Protocol[P]):
    """Who proposes, writes, tests and reviews. None everywhere = nothing is left to pay it with."""

    async def strategies(self, most: int) -> Sequence[P] | None:
        """Ways to go about it, without code."""
        ...

    async def write(self, node: SearchNode[P]) -> Made[P] | None:
        """Code by a strategy, or the parent's code mended by a reflection; its value is the share of tests passed."""
        ...

    async def review(self, made: Made[P]) -> float:
        """The critic's grade in [0, 1]."""
        ...

    async def reflect(self, made: Made[P], most: int) -> Sequence[P]:
        """What to change next: one or several, without code."""
        ...


class CodeTree(Generic[P]):
    """The plan and what makes its moves: the latest proposal that was not tried is tried next."""

    def __init__(self, rules: CodeTreeRules, coder: Coder[P]) -> None:
        self.rules = rules
        self.coder = coder
        self.accepted: SearchNode[P] | None = None
        self.select = Stack(untried, priority=lambda node: 0.0)

    def moves(self, moment: Moment[P]) -> Sequence[Move[P]]:
        """The strategies at first, then one solution a turn, until one is accepted."""
        node = None if self.accepted else self.select(moment)
        if node is None:
            return []
        if node.parent is None:
            return [Move(node, "strategy", ways=self.rules.ways)]
        return [Move(node, "solve" if node.depth == 1 else "debug")]

    def backup(self, graph: SearchGraph[P], move: Move[P], nodes: Sequence[SearchNode[P]]) -> None:
        """Nothing is told upwards; what was tried is not tried again."""
        move.node.notes[TRIED] = True

    async def make(self, moves: Sequence[Move[P]]) -> Sequence[Sequence[Made[P]]] | None:
        """Propose, or write, test, review and reflect."""
        node, rules = moves[0].node, self.rules
        if node.parent is None:
            first = await self.coder.strategies(rules.ways)
            return None if first is None else [[Made(payload) for payload in first[: rules.ways]]]
        made = await self.coder.write(node)
        if made is None:
            return None
        if made.value is None:
            return [[replace(made, here=True, closed=True)]]
        worth, goes_on = await self.judged(node, made)
        made = replace(made, value=worth, here=True, closed=not goes_on)
        ideas = await self.coder.reflect(made, rules.ways) if goes_on else ()
        return [[made, *(Made(payload) for payload in ideas[: rules.ways])]]

    async def judged(self, node: SearchNode[P], made: Made[P]) -> tuple[float, bool]:
        """The node's value, and whether its line goes on."""
        rules, passed, above = self.rules, made.value or 0.0, node.parent
        assert above is not None
        deepest = node.depth >= rules.depth
        if passed >= 1:
            node.notes["passed"] = True
            twice = deepest and bool(above.notes.get("passed"))
            if await self.coder.review(made) >= rules.accept or twice:
                self.accepted = node
            return 1 + MOST / 15, self.accepted is None and not deepest
        if deepest:
            return passed, False
        said = round(MOST * await self.coder.review(made)) if rules.critic else 0
        value = passed + said / 15
        if not rules.prune or above.value is None:
            return value, True
        return value, value > above.value or (value == above.value and node.depth <= said)


def written(graph: SearchGraph[Any]) -> list[SearchNode[Any]]:
    """Nodes that hold code."""
    return [node for node in graph if node.notes.get(TRIED) and node.parent is not None and node.value is not None]


# CodeTree over whole answers: a thinker's strategies and reflections, a policy's answers, a critic's grades.


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


@dataclass(frozen=True, slots=True)
class CodeTreeRecipe:
    """Strategies are tried depth first; each answer is tested, scored by a critic, and mended, given up or accepted.

    The order of the stack, the values r + s/15, and the rules for accepting and giving up are those of the released
    agent mode. Thinker and critic are paid as all roles are; the paper charges generations alone. Texts, and a critic's
    score of 0 to 5, are reconstructed. What the paper runs are tests; here it is the verifier, so ask it only where it
    may be asked. Answers are sampled, where the paper decodes greedily and differs by its strategies alone; a policy
    that lists none (`plan=""`) has `ways` first tries that differ by chance. A critic's words never stand in a prompt,
    only scores. Breadth-first mode is left out. Its evidence pays critic and thinker in both arms, and its baseline may
    edit as well: what is asked is what leaving a strategy is worth.
    """

    card: ClassVar[Card] = Card(
        "codetree", "Agent-guided tree search", "2411.04329", 2024,
        "95.1 on HumanEval, 98.7 on MBPP and 43.0 on CodeContests (GPT-4o)", ("generate", "filter", "control"),
        "best_of_n",
        Evidence("programs solved", "one program edited again and again, as many calls", least=0.02,
                 check="rolltree_papers.codetree.study:codetree", seeds=5),
        counter=Counter("rollout/depth", rest=1.0),
    )  # fmt: skip
    generations: int = 20
    """B: answers written for an item, mended ones included."""
    ways: int = 10
    """W: most strategies, and most reflections on one answer."""
    depth: int = 3
    """D: answers on one line."""
    accept: float = 0.5
    """Least grade by which the critic accepts an answer that passes."""
    worth: str = "verifier"
    """What an answer is worth: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    critic: str = "path"
    """Who scores what fails and accepts what passes: the same names as for `worth`."""
    prune: bool = True
    """Whether a line whose value falls behind its parent's is given up."""
    plan: str = ""
    """Asks the thinker for strategies, one a line, about {prompt}; "" = none are listed."""
    solve: str = ""
    """Asks for an answer by the strategy {says}; "" = the item's prompt alone."""
    reflect: str = ""
    """Asks the thinker what to change in {answer} of {score}, one idea a line; "" = nothing is said."""
    debug: str = "\n[{score}] {prompt}"
    """Asks again below an answer; {prompt}, {says}, {answer} and {score} are filled in."""

    def build(self) -> Parts:
        """A stack of proposals."""
        check_group("codetree", self.generations)
        return search_parts("codetree", CodeTreeAnswers(
            self.generations, CodeTreeRules(self.ways, self.depth, self.accept, prune=self.prune),
            CodeTreeTexts(self.plan, self.solve, self.reflect, self.debug), judge_of(self.worth), judge_of(self.critic),
        ))  # fmt: skip
