"""The tables that the README opens with, as plans: which arms, in which regimes, at which rate."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rolltree.compare import contrast

STALE = ("fresh", "stale2", "stale8", "stale32")

SCHEDULES = ("areal", "april", "verl", "slime", "dart")


@dataclass(frozen=True, slots=True)
class TableArm:
    """One row: a recipe with knobs of its own. A tree has a flat control, which `flat` rollouts of a prompt make."""

    label: str
    recipe: str
    knobs: tuple[str, ...] = ()
    flat: int = 0
    base: str = ""
    """The row that it is held against, where that is neither its flat control nor the first row."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A table: its rows in its columns. The first row is the baseline of every column."""

    name: str
    title: str
    arms: tuple[TableArm, ...]
    regimes: tuple[str, ...]
    factors: tuple[float, ...] = (1.0,)
    """Multiples of the calibrated rate; each is a column of its own."""
    seeds: int = 6
    baseline_seeds: int = 20
    """Seeds of the first row in each column: its mean, spread and collapses are what all rows are read against."""
    settings: tuple[str, ...] = ()
    """More knobs for all arms."""
    note: str = ""
    """What a reader must know of its rows."""

    def rows(self) -> tuple[TableArm, ...]:
        """All rows, each tree followed by its flat control."""
        out: list[TableArm] = []
        for arm in self.arms:
            out.append(arm)
            if arm.flat:
                out.append(TableArm(flat_label(arm), arm.recipe, (*arm.knobs, f"use_flat={arm.flat}")))
        return tuple(out)


def flat_label(arm: TableArm) -> str:
    """The label of a tree's flat control."""
    return contrast.flat_label(arm.label)


def base_of(plan: TablePlan, label: str, labels: Collection[str]) -> str:
    """What a row is held against among those that were run: its own base, a tree its flat control, all else the first
    row."""
    row = next(row for row in plan.rows() if row.label == label)
    own = row.base or (flat_label(row) if row.flat else "")
    return own if own in labels else plan.rows()[0].label


def is_flat(arm: TableArm) -> bool:
    """Whether a row is a flat control."""
    return any(knob.startswith("use_flat=") for knob in arm.knobs)


def _named(*names: str) -> tuple[TableArm, ...]:
    return tuple(TableArm(name, name) for name in names)


def _credits(*names: str) -> tuple[TableArm, ...]:
    return tuple(TableArm(name, "grpo", (f"use_credit={name}",)) for name in names)


CREDITS = _credits("grpo", "rloo", "dr_grpo", "opo", "reinforce_pp_baseline", "gigpo(std=True)", "hgpo")
TREES = (
    TableArm("grpo", "grpo"), TableArm("arpo", "arpo", ("leaves=8", "first=4"), 8),
    TableArm("aepo", "aepo", ("leaves=8", "first=4"), 8), TableArm("treeps_rag", "treeps_rag", ("leaves=8",), 8),
    TableArm("portool", "portool", (), 16),
)  # fmt: skip
"""Not poly_ppo: it gives pass@1 away for more ways."""

TABLES: Mapping[str, TablePlan] = {
    t.name: t
    for t in (
        TablePlan(
            "stability", "The stability map: corrections of stale rollouts, by staleness and rate",
            (TableArm("ppo-clip", "grpo"), TableArm("dual-clip", "dual_clip"),
             *_named("tis", "icepop", "areal", "minpro", "m2po", "bapo", "vcpo")),
            STALE, factors=(1.0, 4.0),
            note="ppo-clip is GRPO as most trainers run it: its ratio is against the weights at the start of the "
            "step, so it bounds what the updates of a step do and says nothing of how old the rollouts are. areal is "
            "made of four updates a step, also on stale32, where the calibration gives the others one.",
        ),
        TablePlan(
            "stale-parts", "What corrections of stale rollouts are made of",
            (TableArm("ppo-clip", "grpo"),
             TableArm("mean over tokens", "dual_clip", ("dual=none", "against=old"), base="ppo-clip"),
             TableArm("ratio against sampled", "dual_clip", ("dual=none",), base="mean over tokens"),
             TableArm("path weights", "vcpo", ("power=0", "baseline=False"), base="ratio against sampled"),
             TableArm("and smaller steps", "vcpo", ("baseline=False",), base="path weights"),
             TableArm("vcpo", "vcpo", base="and smaller steps")),
            ("stale8", "fresh"), baseline_seeds=6,
            note="Each row is held against the one above it. ppo-clip is GRPO; the second row's mean is over tokens, "
            "not over responses; in the third the clip's ratio is against the distribution that sampled. Path weights "
            "are VCPO's loss alone; it adds the step that shrinks with the effective sample size, then its baseline.",
        ),
        TablePlan(
            "schedules", "Schedules where lengths have a heavy tail, everything else GRPO's",
            (TableArm("sync", "grpo"), *(TableArm(name, "grpo", (f"train.scheduler={name}",)) for name in SCHEDULES)),
            ("tails",),
        ),
        TablePlan("credits-long", "Credits over many turns, everything else GRPO's", CREDITS, ("long",),
                  baseline_seeds=6),
        TablePlan("credits-noisy", "Credits where tools fail, everything else GRPO's", CREDITS, ("noisy",)),
        TablePlan(
            "trees-fresh", "Tree strategies for answers of one turn, beside flat groups of as many rollouts",
            (TableArm("grpo", "grpo"), TableArm("treepo", "treepo", ("leaves=8", "segment=8"), 8),
             TableArm("latr", "latr", (), 8), TableArm("rose", "rose", (), 8)),
            ("fresh",),
        ),
        TablePlan("trees-long", "Tree strategies over many turns, beside flat groups of as many rollouts", TREES,
                  ("long",), baseline_seeds=6),
        TablePlan("trees-noisy", "Tree strategies where tools fail, beside flat groups of as many rollouts", TREES,
                  ("noisy",)),
        TablePlan(
            "real", "Recipes on SmolLM2-135M-Instruct", _named("grpo", "rloo", "dr_grpo", "gspo", "dapo"), ("real",),
            seeds=6, baseline_seeds=6,
        ),
    )
}  # fmt: skip
