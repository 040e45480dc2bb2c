"""TableGPT-R1: each kind of task is rewarded in its own way (arXiv 2512.20312)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from rolltree.credit.registry import load_credit
from rolltree.filter.methods.tablegpt_r1 import TABLES
from rolltree.filter.overlong import Overlong, Shaper
from rolltree.filter.parts import Composite
from rolltree.filter.weights import weighed
from rolltree.generate.independent import Independent
from rolltree.generate.judge.habits import Fresh, Sparing, StepsTaken
from rolltree.generate.judge.measured import MeasuredJudge
from rolltree.generate.judge.protocol import Judge
from rolltree.generate.judge.routed import Criteria, Routed
from rolltree.generate.judged import judged_parts
from rolltree.objective.registry import load_objective
from rolltree.recipe.compose import at_start
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, Peer, check_group
from rolltree.varying import Knob


@dataclass(frozen=True, slots=True)
class TableGptR1:
    """GRPO's credit on what an item's kind asks for: rules, its own criteria read by a judge, or rules and each step.

    An item says its `kind` (verifiable, open, agentic), its `criteria` and whether it may plot (`need_plot`) in its
    meta or its row of data; without a kind the task's environment decides. The judge is a frozen copy of the first
    policy, asked about open items alone. Reconstructed: which fault costs 0.1 (a repeated call) and which 0.2 (a failed
    one); the cap on a rollout's steps; the words; weights of regularisers; the objective, an image in the paper: GSPO's
    ratio and its narrow window, wider above, averaged over tokens. Entropy is rewarded from step 50 on. Warm-up,
    mixture, stages and the choice of items that 3 to 7 of 8 rollouts solve are the data's; a group without a difference
    teaches nothing anyway. The evidence is a writer of six words, against the same parts read off every text, by a
    judge that is silent without criteria or one that is not.
    """

    card: ClassVar[Card] = Card(
        "tablegpt_r1", "TableGPT-R1", "2512.20312", 2025,
        "Spider 86.7 and BIRD 63.2 with Qwen3-8B, which keeps 95.6 on GSM8K", ("generate", "filter", "objective"),
        "gspo",
        Evidence("texts that are right for their kind of task", "the same parts, unrouted, at their better",
                 "higher", 0.05, seeds=5, check="studies.exact.routed:tablegpt_r1"),
        counter=Counter("reward/reshaped"),
    )  # fmt: skip
    group: int = 8
    judge: Literal["frozen", "verifier"] = "frozen"
    """Who reads criteria: a frozen copy of the first policy, or the task's verifier in its part `criteria`."""
    productive: float = 0.1
    """What a call that worked earns."""
    repeated: float = -0.1
    """What a call earns that stood there before (reconstructed)."""
    faulty: float = -0.2
    """What a call earns that failed (reconstructed)."""
    most: float = 0.5
    """Bound of what steps earn in all (reconstructed)."""
    fresh: float = 0.1
    """Weight of not repeating runs of four words."""
    calm: float = 0.1
    """Weight of not doubting again and again."""
    doubts: tuple[str, ...] = ("wait", "alternatively")
    """Words of doubt."""
    free: int = 2
    """How many of them nobody minds."""
    no_plot: float = 0.1
    """Weight of not plotting where the item does not say `need_plot`."""
    plots: tuple[str, ...] = ("plt.", "matplotlib", "seaborn")
    """What plots."""
    overlong: float = 1.0
    """Most that an answer loses near the limit of tokens."""
    clip_low: float = 3e-4
    clip_high: float = 4e-4
    entropy: Knob = "0, 0.001 at 50"
    """Coefficient of the entropy bonus."""
    updates: int = 4

    @at_start
    def build(self) -> Parts:
        """Independent rollouts, a route and habits for each, group credit, sequence ratios."""
        check_group("tablegpt_r1", self.group)
        rewards = weighed(TABLES, {"fresh": self.fresh, "calm": self.calm, "no_plot": self.no_plot})
        frozen = self.judge == "frozen"
        judges: dict[str, Judge] = {
            "rules": Routed(MeasuredJudge("reward"), ("verifiable", "agentic")),
            "criteria": Routed(Criteria() if frozen else MeasuredJudge("criteria"), ("open",)),
            "steps": Routed(StepsTaken(self.productive, self.repeated, self.faulty, self.most), ("agentic",)),
            "fresh": Fresh(),
            "calm": Sparing(self.doubts, self.free),
            "no_plot": Sparing(self.plots, allowed="need_plot"),
        }
        shapers: tuple[Shaper, ...] = (Composite(rewards), Overlong(penalty=self.overlong))
        return Parts(
            "tablegpt_r1", judged_parts(Independent(self.group), {p.name: judges[p.name] for p in rewards.parts}),
            load_credit("grpo"),
            load_objective("gspo", clip_low=self.clip_low, clip_high=self.clip_high, entropy_bonus=float(self.entropy)),
            averaging="token", shapers=shapers,
            peers={"judge": Peer(trained=False, writes=False)} if frozen else {}, optim={"minibatches": self.updates},
        )  # fmt: skip
