"""SlideForge: decks rewarded for whether their brief can be read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.parts import Composite, weighed
from rolltree.filter.shaping import SLIDES
from rolltree.generate.independent import Independent
from rolltree.generate.judge.backward import Backward
from rolltree.generate.judge.engine_judges import Likelihood
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.judged import judged_parts
from rolltree.generate.strategy import TreeStrategy
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, check_group

FROZEN = ("brief", "content", "look_html")
"""Parts that a text alone shows."""


@dataclass(frozen=True, slots=True)
class SlideForge:
    """GRPO on the weighted mean of six parts, one of them how well a judge finds the brief again from the deck alone.

    A frozen copy of the first policy reads the deck: the likelihood of the brief after it (where the release predicts
    topic, audience, count and themes, and compares words: `brief_recovered`), and " yes" against " no" about content
    and looks (reconstructed). Rules, rendering and the picture's looks are for the task's verifier (`slides` has one);
    without it give them the weight 0. A deck is one completion. The tool environment (search, outline, edits, in up to
    50 steps) is left out; the released trainer leaves episodes out too and rewards one call, −2 where it cannot be read
    and −1 where it fails, which a task's verifier may say. A component that breaks is a failed rollout here and 0 for a
    whole batch there. Rewards of single edits as change of quality (`rolltree.filter.shaping.delta`) sum to the last
    quality less the first; the bonus for each call (0.01, −0.02, 0.1 for the last) goes with the environment. The
    evidence is a writer of six words and an exact reader, who is paid for with all words and measures with the brief's
    own covered.
    """

    card: ClassVar[Card] = Card(
        "slideforge", "Inverse specification rewards", "SlideForge", 2026,
        "a 7B model reaches 91.2 % of its teacher's quality, 33.1 % above its start", ("generate", "filter"), "grpo",
        Evidence("brief read back with its names covered", "the better of the brief alone and the five other parts",
                 "higher", 0.05, seeds=5, check="rolltree_papers.slideforge.study:slideforge"),
        task="slides", counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    judge: Literal["frozen", "verifier"] = "frozen"
    """Who measures brief, content and looks of the text: a frozen copy of the first policy, or the task's verifier."""
    rules: float = 1.0
    """Weight of the rules of form."""
    render: float = 2.0
    """Weight of being rendered."""
    content: float = 2.0
    """Weight of the content."""
    look_html: float = 1.5
    """Weight of the looks of the source."""
    look_png: float = 1.5
    """Weight of the looks of the picture."""
    brief: float = 2.0
    """Weight of the brief read back. Alone it is satisfied by a list of the brief's words."""
    clip: float = 0.2
    kl: float = 0.0

    def build(self) -> Parts:
        """Independent decks, grades, their weighted mean, mean-and-deviation credit, clipped surrogate."""
        check_group("slideforge", self.group)
        rewards = weighed(SLIDES, {part.name: float(getattr(self, part.name)) for part in SLIDES.parts})
        own: TreeStrategy = Independent(self.group)
        peers = dict[str, Peer]()
        if self.judge == "frozen":
            yes = (" yes", " no")
            known: dict[str, Judge] = {
                "brief": Backward("{text}\nThe deck was made from this brief: ", role="judge"),
                "content": Likelihood("{prompt}\n{entry}\nDoes the deck say what was asked for?", options=yes),
                "look_html": Likelihood("{entry}\nIs this deck well laid out?", options=yes),
            }
            own = judged_parts(own, {p.name: known[p.name] for p in rewards.parts if p.name in FROZEN})
            peers = {"judge": Peer(trained=False, writes=False)}
        return Parts(
            "slideforge", own, load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip, clip_high=self.clip, kl=self.kl), averaging="sequence",
            shapers=(Composite(rewards),), peers=peers,
        )  # fmt: skip
