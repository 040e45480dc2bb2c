"""Which recipes act: each beside its baseline for a few steps, and what the counter on its card says of both.

Run `python -m studies.lab.acts` after a counter changed; it writes docs/measured/acts.md. Runs are as small as can be
and tell nothing of what a method is worth.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rolltree.cli import main
from rolltree.errors import RolltreeError
from rolltree.metrics.log import read_metrics
from rolltree.metrics.registry import value_in
from rolltree.recipe.recipe import Counter
from rolltree.recipe.registry import list_recipes, load_recipe
from rolltree.training import run
from studies.lab.recipe_pages import example_task

PAGE = Path("docs/measured/acts.md")
STEPS = 2
TINY = f"--steps {STEPS} --prompts 4 --max-tokens 24 --eval-every 0 --doctor 0 --forests-every 0 --json"
"""Of both runs, unless a line below says otherwise."""
STALE = "--staleness 1 --steps 4 --lr 1e-2 --minibatches 4"
"""What a correction for stale rollouts needs: weights that move far between sampling and training."""
FAR = "--lr 3e-2 --minibatches 4"
"""What a bound of ratios needs: updates that go far in one step."""
BOTH: Mapping[str, str] = {
    "areal": STALE, "bapo": STALE, "cispo": FAR, "dual_clip": STALE, "gmpo": FAR, "icepop": STALE, "m2po": STALE,
    "minpro": STALE, "soft_sapo": FAR, "tis": STALE, "vcpo": STALE,
    "adadagrad": "--prompts 8",
    "remix": "--steps 4", "v05": "--steps 4", "rollout_gdro": "--steps 8 --items 8", "prompt_gdro": "--steps 4",
    "dart": "--steps 8 --items 4", "dots": "--steps 4",
    "mc_grpo": "--max-tokens 96", "latr": "--max-tokens 64 --prompts 8", "reex_sql": "--max-tokens 96",
    "intern_atlas": "--max-tokens 96",
}  # fmt: skip
"""Further options of both runs."""
OWN: Mapping[str, str] = {"arrol": "--warm 2 --bins 4 --steps 4"}
"""Further options of the recipe's run alone."""
FOUNDATION: Mapping[str, str] = {
    "grpo": "it has no baseline",
    "otr": "it has no baseline",
    "ppo": "it has no baseline",
    "self_pretraining": "it has no baseline",
    "best_of_n": "it trains as grpo does; what it is for is `solve`",
}
"""Recipes whose counter has nothing to be held against."""
SHARED: Mapping[str, str] = {
    "hgpo": "both depart from GRPO's advantages, by groups of states",
    "hrm": "both branch at every step",
    "meds3": "both branch at every step",
    "i_mcts": "both are searches that branch at every step",
    "sage": "both answer again",
    "webstar": "both give every step a value",
    "flow_grpo": "both train on what they sampled",
}
"""Recipes whose mechanism no metric tells from that of their baseline, with what both do."""

LONGER = frozenset({"april", "conciser", "drive", "e1", "himac", "hiper", "sage_skills", "scaler", "swarm", "vade"})
"""Recipes that act later than these runs end, or in the conditions of their evidence alone."""


@dataclass(frozen=True, slots=True)
class Act:
    """What a counter said of a recipe and of its baseline."""

    recipe: str
    counter: Counter
    own: tuple[float | None, ...]
    """Of each step; None where it was not measured."""
    baseline: str
    theirs: tuple[float | None, ...]

    @property
    def acted(self) -> int:
        """Steps in which the recipe's mechanism acted."""
        return sum(map(self.counter.moved, self.own))

    @property
    def rests(self) -> bool:
        """Whether it rests in the baseline."""
        return not any(map(self.counter.moved, self.theirs))


def measure(name: str) -> Act:
    """Run a recipe and its baseline on the task of its page, with the same options."""
    recipe = load_recipe(name)
    card = recipe.card
    assert card.counter is not None
    task, both = example_task(recipe), BOTH.get(name, "")
    own = _steps(name, task, f"{card.options} {both} {OWN.get(name, '')}")
    baseline = "" if name in FOUNDATION else card.baseline or ""
    theirs = _steps(baseline, task, both) if baseline else ()
    values = (tuple(value_in(line, card.counter.metric) for line in lines) for lines in (own, theirs))
    return Act(name, card.counter, next(values), baseline, next(values))


@cache
def _steps(name: str, task: str, options: str) -> tuple[Mapping[str, Any], ...]:
    """The training steps of a run; a baseline that several recipes share is run once."""
    said = StringIO()
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = ["train", name, "--task", task, *shlex.split(f"{TINY} {options}"), "--out", str(out)]
        # What ran is the same for all of them, and reading it again takes longer than a step.
        with patch.object(run, "surroundings", dict[str, str]), redirect_stdout(said), redirect_stderr(said):
            code = main(words)
        if code:
            raise RolltreeError(f"{shlex.join(words)} failed: {said.getvalue().strip()[-400:]}")
        return tuple(line for line in read_metrics(out / "metrics.jsonl") if line["kind"] == "train")


def page(acts: Sequence[Act]) -> str:
    """All of them as a table."""
    rows = "\n".join(
        f"| {a.recipe} | `{a.counter.metric}` | {a.baseline or '–'} | {_mean(a.theirs, a.counter)} | "
        f"{_mean(a.own, a.counter)} | {a.acted} of {len(a.own)} | {_word(a)} |"
        for a in acts
    )
    return (
        "# Whether recipes act\n\nWritten by `python -m studies.lab.acts`: each recipe and its baseline for a few tiny "
        "steps with the embedded policy, on the task of the recipe's page. A counter rests in the baseline and moves "
        "where the mechanism acts; a value not measured is a dash.\n\n"
        "| recipe | counter | baseline | in the baseline | in the recipe | steps acted | |\n"
        "|---|---|---|---|---|---|---|\n"
        f"{rows}\n"
    )


def _mean(values: Sequence[float | None], counter: Counter) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.3g}" if known else "–"


def _word(act: Act) -> str:
    if act.recipe in FOUNDATION:
        return FOUNDATION[act.recipe]
    if not act.acted:
        return "needs a longer run than this"
    return "" if act.rests else SHARED.get(act.recipe, "not at rest in the baseline")


if __name__ == "__main__":
    measured: list[Act] = []
    for card in list_recipes():
        measured.append(measure(card.name))
        print(measured[-1].recipe, measured[-1].acted, flush=True)
    PAGE.write_text(page(measured), encoding="utf-8")
