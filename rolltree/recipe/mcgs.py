"""MCGS: Monte Carlo graph search (AutoMLGen, arXiv 2510.08511)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.generate.methods.mcgs import McgsRules
from rolltree.generate.methods.mcgs_answers import TEXTS, GraphSearch
from rolltree.generate.search.attempts import OperatorTexts
from rolltree.generate.search.values import judge_of
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class McgsRecipe:
    """A tree of answers whose branches, once they stand still, are shown one another's best.

    Nodes are whole answers; operators draft, improve, debug (an answer that cannot be read), evolve along the path,
    fuse with other branches' best and aggregate the best of all. References are context only: nothing is told along
    them. Constants are those of the group's open successor code, as shares of `nodes` instead of hours. Its memory of
    other tasks and its domain knowledge are left out; the operators' texts, and that drafts four and five come once the
    whole search stands still for twelve nodes, are ours (reconstructed). It needs a policy that reads: the embedded one
    does not.
    """

    card: ClassVar[Card] = Card(
        "mcgs", "Monte Carlo graph search", "2510.08511", 2025,
        "36.4 % average medal rate on MLE-Bench in 12 hours, half of the usual time", ("generate", "control", "replay"),
        "best_of_n",
        Evidence("best value", "UCT with the same edits on separable landscapes", check="studies.search.nk:separable",
                 seeds=5),
        counter=Counter("rollout/group_size"),
    )  # fmt: skip
    nodes: int = 32
    """Attempts per prompt, failed ones included."""
    evolution: bool = True
    """Whether a branch that stands still is gone on with in sight of its own path."""
    fusion: bool = True
    """Whether it is shown the other branches' best."""
    aggregation: bool = True
    """Whether a new branch begins from the best of all branches once all stand still."""
    switch: bool = True
    """Whether selection goes over from UCT to the best few nodes between half and 70 % of the search."""
    chains: bool = True
    """Whether what gains is gone on with at once and told upwards at its end."""
    worth: str = "verifier"
    """What an attempt is worth: path, step or least (confidence over it), verifier, or head:FILE (rolltree labels)."""
    improve: str = TEXTS["improve"]
    """What asks for a better answer; {prompt}, {answer}, {score}, {path}, {siblings}, {references} are filled in."""
    debug: str = TEXTS["debug"]
    """What asks again after an answer that cannot be read."""
    evolve: str = TEXTS["evolve"]
    """What asks with the path in sight."""
    fuse: str = TEXTS["fuse"]
    """What asks with other branches' best in sight."""
    aggregate: str = TEXTS["aggregate"]
    """What begins a branch from the best of all."""
    workers: int = 3
    """Attempts under way at once."""
    final: Literal["vote", "best"] = "best"
    """The answer: most value in all, or the single best attempt's."""

    def build(self) -> Parts:
        """A graph search over attempts."""
        check_group("mcgs", self.nodes)
        rules = McgsRules(evolution=self.evolution, fusion=self.fusion, aggregation=self.aggregation,
                          switch=self.switch, chains=self.chains)  # fmt: skip
        texts = {"improve": self.improve, "debug": self.debug, "evolve": self.evolve, "fuse": self.fuse,
                 "aggregate": self.aggregate}  # fmt: skip
        search = GraphSearch(self.nodes, rules, OperatorTexts(texts), judge_of(self.worth), self.workers, self.final)
        return search_parts("mcgs", search)
