"""MyAntFarm's chain of roles: diagnose, plan, assess (multi-agent incident response)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rolltree.generate.methods.stages import Stage, Staged
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.recipe.searching import search_parts


@dataclass(frozen=True, slots=True)
class MyAntFarm:
    """Three roles speak one after the other about the item, and the answer is written with what they said in sight.

    The study found 100 % of such answers actionable against 1.7 % of a single role's, with no variance at all, which
    suggests one scenario decoded greedily. What such a gap is due to is to be asked first: a single role that is asked
    for all that the three are asked for (`stages=""`, and the requirements in the prompt). Texts are the user's; only
    the abstract was read, and the order of three is the paper's. Its evidence has such a role answer as often as the
    chain's tokens allow, and vote; every further part that is asked for at once costs it a tenth of the chance of each.
    Where it costs nothing, the vote is ahead (`python -m studies.incidents`).
    """

    card: ClassVar[Card] = Card(
        "myantfarm", "A chain of diagnoser, planner and assessor", "MyAntFarm", 2025,
        "100 % against 1.7 % actionable recommendations in 348 trials, at equal latency", ("generate",), "best_of_n",
        Evidence("quality of the chain", "the vote of a single role that is asked for the same, as many tokens",
                 least=0.02, check="studies.incidents:chained", seeds=5),
        counter=Counter("budget/role/diagnoser"),
    )  # fmt: skip
    diagnose: str = "{prompt}"
    """What the diagnoser reads; {prompt} and {said} are filled in. "" = there is none."""
    plan: str = "{prompt}{said}"
    """What the planner reads."""
    assess: str = "{prompt}{said}"
    """What the assessor reads."""
    shown: str = "{said}"
    """How what they said stands in front of the answer."""
    answers: int = 2
    """Answers, each with a chain of its own, voted on."""
    stage_tokens: int = 64
    """Most tokens of a role's text."""

    def build(self) -> Parts:
        """A chain, and answers that are a group."""
        check_group("myantfarm", self.answers)
        asks = {"diagnoser": self.diagnose, "planner": self.plan, "assessor": self.assess}
        stages = tuple(Stage(role, ask) for role, ask in asks.items() if ask)
        return search_parts("myantfarm", Staged(stages, self.answers, self.shown, self.stage_tokens))
