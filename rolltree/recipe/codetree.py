"""CodeTree: agent-guided tree search over strategies, solutions and reflections (arXiv 2411.04329)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.generate.methods.codetree import CodeTreeRules
from rolltree.generate.methods.codetree_answers import CodeTreeAnswers, CodeTreeTexts
from rolltree.generate.search.values import judge_of
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts


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
                 check="studies.search.codetree:codetree", seeds=5),
        counter=Counter("rollout/group_size"),
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
