"""Compare recipes fairly: the same policy, prompts, held-out items, seeds and budget for each, and a verdict.

The budget is counted in decoded tokens unless asked otherwise: what generation costs, each prefix once, whatever the
strategy does with it. Runs are made seed by seed over all arms, so an interrupted comparison is already a paired one.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, cast

import tyro
from rich.console import Console

from rolltree.compare.arms import Arm, arms
from rolltree.compare.contrast import (
    Contrast,
    Measure,
    check_metric,
    common_target,
    contrasts,
    flat_label,
    measures,
)
from rolltree.compare.names import is_share, less_is_better
from rolltree.compare.parts_apart import apart, said, shapes_trees
from rolltree.compare.progress import metered
from rolltree.compare.regimes import knobs_of, regime
from rolltree.compare.report import ReportTree, chosen_tree, print_page, versions, write_html
from rolltree.compare.runner import Composes, Conditions, Runner, Shelf, Spec
from rolltree.compare.trace import Axis, LabError, Trace, write_json
from rolltree.console import Terminal
from rolltree.engine.protocol import reads_text
from rolltree.knobs.amounts import Tokens, amount
from rolltree.recipe.acted import Acted
from rolltree.recipe.need import COMES_BACK, Need
from rolltree.recipe.registry import needs_of
from rolltree.rollout.widths import width_of
from rolltree.task.registry import policy_of_task
from rolltree.tree.store.atomic import check_writable

Repeated = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]
"""An option that may be given several times."""


USUAL_WIDTH = 8
"""Rollouts of a prompt where no strategy says how many it makes."""


@dataclass(frozen=True)
class CompareConfig:
    """Compare recipes at an equal budget, with intervals and a verdict."""

    recipes: tuple[str, ...]
    """Recipes to compare; the first is the baseline. NAME(KNOB=VALUE) sets a knob of one of them."""
    task: str = "countdown"
    """Task all are trained and judged on."""
    regime: str = ""
    """Compare in named conditions instead (docs/howto/regimes.md): its task, level, policy, budget, evaluation, knobs
    and the rate and updates that were calibrated for it; --set goes before its knobs."""
    budget: str = "300k"
    """What each run may spend, on the axis below: 300k, 1.5M, 20000."""
    seeds: int = 5
    """Runs of each recipe. With fewer than three no interval is worth much."""
    axis: Axis = "decoded"
    """What the budget counts: decoded tokens, trained tokens or seconds of training."""
    metric: str = "pass@1"
    """What the verdict is about: pass@1 or pass@k at the budget, "pass@1 area" on the way, or a metric of rollouts
    by the last part of its name, such as length or zero_variance (docs/metrics.md lists them)."""
    least: float = 0.0
    """Smallest gain of interest, as a share (0.02 = 2 points): an interval below it excludes it."""
    confidence: float = 0.95
    """Level of every interval."""
    target: float | None = None
    """Held-out pass@1 to reach (a share). Default: half of the largest gain any recipe made, said in the report."""
    level: int | None = None
    """Difficulty of the task; default: the task's own."""
    model: str = ""
    """Policy all start from; nano when left out, or the task's own (digits)."""
    first_seed: int = 0
    """Seeds are this one and the following."""
    set: Repeated = ()
    """Knobs as NAME=VALUE for all, RECIPE:NAME=VALUE for one; train.NAME and optim.NAME reach the trainer; control=NAME
    and control.KNOB=VALUE put another control over a recipe."""
    sweep: Repeated = ()
    """Knobs to sweep as NAME=A,B,C: every combination becomes an arm."""
    flat: bool = True
    """Beside every recipe that shapes trees compare the same one with as many independent rollouts."""
    frozen: bool = False
    """Train nothing: hold the recipes against one another as ways to answer held-out items, at equal tokens over all
    roles (the budget shared among --eval-items), beside majority and most confident."""
    eval_every: int = 5
    """Steps between evaluations."""
    eval_items: int = 64
    """Held-out items, the same at every evaluation and for every arm of a seed."""
    eval_samples: int = 8
    """Samples of each: the k of pass@k."""
    max_tokens: Tokens | None = None
    out: Path = Path("runs/compare")
    """Folder for report.html and compare.json."""
    cache: Path = Path("runs/cache")
    """Finished runs, found again by their content: the same knobs, seed and code are not trained twice."""
    json: bool = False
    """Print the result as JSON instead of tables."""


@dataclass(frozen=True)
class Comparison:
    """A finished (or interrupted) comparison: everything the table, the JSON and the page are made from."""

    arms: tuple[Arm, ...]
    conditions: Conditions
    seeds: tuple[int, ...]
    """Seeds that every arm has finished."""
    metric: str
    target: float
    traces: tuple[Trace, ...]
    headline: dict[str, Measure]
    contrasts: tuple[Contrast, ...]
    confidence: float = 0.95
    wanted_seeds: int = 0
    seconds: float = 0.0
    command: str = ""
    apart: tuple[tuple[str, str], ...] = ()
    """What each arm's composition differs in from the baseline's, by label; empty where the runner cannot say."""
    versions: tuple[tuple[str, str], ...] = field(default_factory=versions)

    def of(self, label: str) -> list[Trace]:
        """The runs of an arm over the compared seeds."""
        return [t for t in self.traces if t.label == label and t.seed in self.seeds]


def compare(
    chosen: Sequence[Arm],
    conditions: Conditions,
    seeds: Sequence[int],
    shelf: Shelf,
    *,
    metric: str = "pass@1",
    least: float = 0.0,
    confidence: float = 0.95,
    target: float | None = None,
    command: str = "",
    console: Console | None = None,
) -> Comparison:
    """Make (or find) every run and compare the arms with the first. Ctrl-C compares the seeds finished by all."""
    if len(chosen) < 2:
        raise LabError("a comparison needs two arms or more; name another recipe or sweep a knob")
    if not seeds:
        raise LabError("a comparison needs at least one seed")
    name = check_metric(metric, conditions.eval_samples)
    _check_judging(least, confidence, target)
    for arm in chosen:
        shelf.runner.check(Spec(arm, seeds[0], conditions))
    started = time.monotonic()
    traces, stopped = _make_all(chosen, conditions, seeds, shelf, console or Terminal(stderr=True))
    if stopped is not None and not _finished(chosen, seeds, traces):
        raise stopped
    made = conclude(
        chosen, conditions, seeds, traces, metric=name, least=least, confidence=confidence, target=target
    )  # fmt: skip
    return replace(
        made, seconds=time.monotonic() - started, command=command, apart=differing(chosen, conditions, shelf.runner)
    )


def differing(chosen: Sequence[Arm], conditions: Conditions, runner: Runner) -> tuple[tuple[str, str], ...]:
    """The pieces in which each arm differs from the first arm."""
    if not isinstance(runner, Composes):
        return ()
    base, *others = ((arm, runner.parts(Spec(arm, 0, conditions))) for arm in chosen)
    return tuple((arm.label, said(apart(parts, base[1], arm.knobs, base[0].knobs))) for arm, parts in others)


def with_flat(chosen: Sequence[Arm], conditions: Conditions, runner: Runner) -> tuple[Arm, ...]:
    """Beside every arm that shapes trees the same recipe with as many independent rollouts, all else equal.

    A strategy that does not say how wide it is gets the baseline's width.
    """
    if not isinstance(runner, Composes):
        return tuple(chosen)
    out: list[Arm] = []
    usual = width_of(runner.parts(Spec(chosen[0], 0, conditions)).strategy) or USUAL_WIDTH
    for arm in chosen:
        out.append(arm)
        strategy = runner.parts(Spec(arm, 0, conditions)).strategy
        if shapes_trees(strategy):
            flat = (*(k for k in arm.knobs if k[0] != "use_flat"), ("use_flat", width_of(strategy) or usual))
            out.append(Arm(flat_label(arm.label), arm.recipe, tuple(sorted(flat))))
    return tuple(out)


def conclude(
    chosen: Sequence[Arm],
    conditions: Conditions,
    seeds: Sequence[int],
    traces: Sequence[Trace],
    *,
    metric: str = "pass@1",
    least: float = 0.0,
    confidence: float = 0.95,
    target: float | None = None,
) -> Comparison:
    """What finished runs say: each arm against the first, over the seeds that every arm has finished."""
    name = check_metric(metric, conditions.eval_samples)
    both = _finished(chosen, seeds, traces)
    if not both:
        raise LabError("no seed was finished by every arm")
    by_arm = {a.label: [t for t in traces if t.label == a.label and t.seed in both] for a in chosen}
    headline = {a: measures(ts, name, conditions.budget, conditions.axis, confidence) for a, ts in by_arm.items()}
    unit = "points" if is_share(name) else ""
    direction = "lower" if less_is_better(name) else "higher"
    made = contrasts(
        headline, chosen[0].label, name, direction=direction, least=least, level=confidence, unit=unit
    )  # fmt: skip
    return Comparison(
        arms=tuple(chosen),
        conditions=conditions,
        seeds=both,
        metric=name,
        target=common_target(by_arm, "pass@1", conditions.axis) if target is None else target,
        traces=tuple(traces),
        headline=headline,
        contrasts=tuple(made),
        confidence=confidence,
        wanted_seeds=len(seeds),
    )


def _finished(chosen: Sequence[Arm], seeds: Sequence[int], traces: Sequence[Trace]) -> tuple[int, ...]:
    return tuple(s for s in seeds if all(any(t.seed == s and t.label == a.label for t in traces) for a in chosen))


def main(config: CompareConfig, runner: Runner | None = None, console: Console | None = None) -> int:
    """Run a comparison, print it, and write report.html and compare.json. 0 = finished, 130 = interrupted."""
    from rolltree.compare.page import acts, page

    if runner is None and config.frozen:
        from rolltree.compare.frozen import FrozenRunner

        runner = FrozenRunner()
    elif runner is None:
        from rolltree.compare.train_runner import TrainRunner

        runner = TrainRunner()
    if config.max_tokens is not None and config.max_tokens < 1:
        raise LabError(f"--max-tokens {config.max_tokens} ends every path at once; give a whole number of at least 1")
    if config.regime:
        config, conditions = in_regime(config)
    else:
        conditions = Conditions(
            task=config.task, budget=amount(config.budget), level=config.level, axis=config.axis,
            model=config.model or policy_of_task(config.task),
            eval_every=config.eval_every, eval_items=config.eval_items, eval_samples=config.eval_samples,
            max_tokens=config.max_tokens,
        )  # fmt: skip
    for option, folder in (("--out", config.out), ("--cache", config.cache)):
        check_writable(folder, option, folder=True)
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    chosen = arms(config.recipes, (*(knobs_of(config.regime) if config.regime else ()), *config.set), config.sweep)
    if config.frozen:
        from rolltree.compare.frozen import with_baselines

        chosen = with_baselines(chosen)
    elif config.flat:
        chosen = with_flat(chosen, conditions, runner)
    chosen = chosen if config.frozen else _met(chosen, console or Terminal(stderr=True))
    result = compare(
        chosen, conditions, seeds, Shelf(config.cache, runner),
        metric=config.metric, least=config.least, confidence=config.confidence, target=config.target,
        command=command(config), console=console,
    )  # fmt: skip
    shown = page(result, tree=_tree(result))
    report = write_html(shown, config.out / "report.html")
    write_json(config.out / "compare.json", as_json(result))
    # Tables stay whole where nobody sees the width: in a pipe or a log.
    out = console or (Terminal() if sys.stdout.isatty() else Terminal(width=140))
    if config.json:
        print(json.dumps(as_json(result)))
    else:
        print_page(shown, out)
        _say_acts(list(acts(result).values())[1:], {flat_label(arm.label) for arm in result.arms}, out)
        out.print(f"\nreport  {report}\ndata    {config.out / 'compare.json'}", highlight=False, markup=False)
    return 0 if len(result.seeds) == config.seeds else 130


def coming_back(chosen: Sequence[Arm]) -> tuple[tuple[Arm, ...], str]:
    """The arms on prompts that come back, where one of them learns about prompts, and what to say of it.

    All of them then train on the same items: a recipe alone on few of them would be compared with other data.
    """
    asking = [arm.label for arm in chosen if Need.revisits in needs_of(arm.recipe)]
    if not asking or any(knob == "train.items" for arm in chosen for knob, _ in arm.knobs):
        return tuple(chosen), ""
    items = ("train.items", COMES_BACK)
    return tuple(Arm(arm.label, arm.recipe, tuple(sorted((*arm.knobs, items)))) for arm in chosen), (
        f"train.items={COMES_BACK} was set for all: {asking[0]} learns from prompts that come back "
        "(--set train.items=N gives another number)"
    )


def _say_acts(found: Sequence[Acted], controls: Collection[str], out: Console) -> None:
    """Whether the mechanism of each arm beside the baseline acted; a flat control is there because it does not."""
    for each in found:
        if each.acted or each.recipe not in controls:
            out.print(str(each), style="" if each.acted else "yellow", highlight=False, markup=False)


def _met(chosen: Sequence[Arm], console: Console) -> tuple[Arm, ...]:
    made, told = coming_back(chosen)
    if told:
        console.print(told, highlight=False, markup=False)
    return made


BROUGHT = ("task", "level", "model", "axis", "eval_every", "eval_items", "eval_samples", "max_tokens", "frozen")
"""What a regime says of a comparison, so that nobody else may."""


def in_regime(config: CompareConfig) -> tuple[CompareConfig, Conditions]:
    """The comparison in its regime; another budget than the default is taken for a part or a multiple of its own."""
    chosen, plain = regime(config.regime), CompareConfig(())
    for name in BROUGHT:
        if (given := getattr(config, name)) != getattr(plain, name):
            flag = name.replace("_", "-")
            raise LabError(f"the regime {config.regime!r} brings its own {flag}: leave --{flag} {given} out")
    if not all(Path(path).exists() for path in chosen.files):
        raise LabError(
            f"the regime {config.regime!r} needs {', '.join(chosen.files)} of a checkout of the source; run it there"
        )
    metric = chosen.metric if config.metric == plain.metric else config.metric
    return replace(config, metric=metric), chosen.conditions(
        None if config.budget == plain.budget else int(amount(config.budget))
    )


def _tree(result: Comparison) -> ReportTree | None:
    """A tree of the last arm whose runs forked below a prompt; None where none did, or no run is on disk."""
    for arm in reversed(result.arms):
        folders = [t.folder for t in result.of(arm.label) if t.folder and (Path(t.folder) / "forests").is_dir()]
        if folders:
            from rolltree.policy.load import load_codec  # loads torch, which reading a stored comparison does not need
            from rolltree.policy.models import model_folder

            codec = load_codec(model_folder(result.conditions.model))
            if not reads_text(codec):  # pictures stand in the viewer
                return None
            tree = chosen_tree(folders, codec.decode, arm.label)
            if tree is not None:
                return tree
    return None


def as_json(result: Comparison) -> dict[str, Any]:
    """The whole comparison as plain values; an interval of one seed has no ends and says null."""
    return cast("dict[str, Any]", _plain(asdict(result)))


def command(config: CompareConfig) -> str:
    """The command line that repeats a comparison."""
    words = ["rolltree", "compare", *config.recipes]
    for name, default in CompareConfig(()).__dict__.items():
        value = getattr(config, name)
        always = ("seeds",) if config.regime else ("task", "budget", "seeds")
        if name in ("recipes", "json", "out") or (value == default and name not in always):
            continue
        for one in cast("tuple[Any, ...]", value if isinstance(value, tuple) else (value,)):
            words.extend([f"--{name.replace('_', '-')}", str(one)])
    return shlex.join(words)


def _check_judging(least: float, confidence: float, target: float | None) -> None:
    """Refuse what no verdict could be made with, before anything is spent."""
    if not 0 < confidence < 1:
        raise LabError(f"the confidence {confidence} is no level; give a number between 0 and 1, as in 0.95")
    if not 0 <= least < math.inf:
        raise LabError(f"the least gain {least} is no size; give 0 or a share above it (0.02 = 2 points)")
    if target is not None and not 0 < target <= 1:
        raise LabError(f"the target {target} is no share; give a pass@1 between 0 and 1, as in 0.5 for half")


def _make_all(
    chosen: Sequence[Arm], conditions: Conditions, seeds: Sequence[int], shelf: Shelf, console: Console
) -> tuple[list[Trace], KeyboardInterrupt | None]:
    traces: list[Trace] = []
    plan = [Spec(arm, seed, conditions) for seed in seeds for arm in chosen]
    with metered(console, len(plan)) as meter:
        for spec in plan:
            what = f"{spec.arm.label}, seed {spec.seed}"
            reused = shelf.get(spec) is not None
            try:
                traces.append(shelf.make(spec, lambda cost, doing: meter.part(cost / conditions.budget, doing)))
            except KeyboardInterrupt as stop:
                return traces, stop
            last = traces[-1].curve("pass@1", conditions.axis)[1][-1]
            meter.finish(what, reused=reused, result=f"pass@1 {100 * last:.1f} %")
    return traces, None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in cast("Sequence[Any]", value)]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):  # noqa: PLR0124
        return None
    return value
