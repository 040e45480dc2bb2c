"""`rolltree budget RUN`: where a run's tokens went, by difficulty, by prompt, and for what taught nothing.

Everything is read from what the run recorded: the numbers of its steps, and the history of prompts in its newest
checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Console

from rolltree.compare.report import Chart, Page, PlotSeries, ReportTable, print_page, shown, write_html
from rolltree.compare.trace import LabError
from rolltree.console import Terminal
from rolltree.control.history import BANDS, History
from rolltree.control.order import PLAIN
from rolltree.metrics.log import MetricsError, read_metrics
from rolltree.metrics.registry import value_in
from rolltree.tree.store.atomic import check_writable
from rolltree.tree.store.values import loads

Lines = Sequence[Mapping[str, Any]]
Rows = list[list[str]]
LATER = {
    "rollout/partial": "rollouts carried over the update, a step",
    "rollout/partial_tokens": "tokens they hold, a step",
    "rollout/partial_finished": "rollouts finished under other weights than they were begun with, a step",
    "staleness/partial_mean": "staleness of carried rollouts in versions",
    "rollout/resumed": "share of trained rollouts that were stopped on the way",
    "rollout/slow_trained": "share of the slowest quarter of prompts that was trained",
    "rollout/other_trained": "the same of all others",
    "rollout/recalled_groups": "groups recalled, a step",
    "staleness/mean": "staleness of trained tokens in versions",
}
"""Numbers about what was begun in one step and trained in another."""


@dataclass(frozen=True)
class BudgetConfig:
    """Say where a run's tokens went."""

    run: Path
    """A run folder."""
    top: int = 10
    """How many of the costliest prompts to list."""
    out: Path | None = None
    """A file for the page as HTML."""
    json: bool = False
    """Print JSON instead of tables."""


def main(config: BudgetConfig, console: Console | None = None) -> int:
    """Print the page, and write it where asked."""
    if config.out is not None:
        check_writable(config.out)
    made = page(config.run, config.top)
    if config.out is not None:
        write_html(made, config.out)
    if config.json:
        print(json.dumps({g.title: [dict(zip(g.columns, row, strict=True)) for row in g.rows] for g in made.grids}))
    else:
        print_page(made, console or Terminal(width=120))
    return 0


def page(run: Path, top: int = 10) -> Page:
    """The page of a run folder."""
    path = run / "metrics.jsonl"
    if not path.is_file():
        raise LabError(f"{run} is no run folder: it has no metrics.jsonl; give the folder that rolltree train wrote")
    try:
        lines = [line for line in read_metrics(path) if line["kind"] == "train"]
    except MetricsError as error:
        raise LabError(str(error)) from error
    steered = any(f"budget/tokens/{name}" in line for line in lines for name in BANDS)
    scheduled = any("rollout/scheduled/submitted" in line for line in lines)
    if not steered and not scheduled:
        raise LabError(f"{run} recorded no spending: no step of it is finished, or a version before 0.2 made it")
    decoded = total(lines, "budget/decoded")
    return Page(
        title=f"Where the budget of {run} went",
        lead=f"{shown(decoded, 'count')} tokens were decoded in {len(lines)} steps.",
        charts=[_over_time(lines)] if steered else [],
        grids=[
            *(_by_difficulty(lines) if steered else []),
            ReportTable("What taught nothing, and what was saved", ["", "count", "tokens", "share of tokens"],
                 [*(_zero_variance(lines, decoded) if steered else []), *_lost(lines, decoded)]),
            *(_arms(lines) if steered else []),
            *(_usages(lines[-1]) if scheduled else []),
            *_later(lines),
            *_prompts(run, top),
        ],
    )  # fmt: skip


def total(lines: Lines, name: str) -> float:
    """Sum of a number over the steps that told it."""
    return float(sum(line[name] for line in lines if line.get(name) is not None))


def _by_difficulty(lines: Lines) -> list[ReportTable]:
    columns = ["band", "tokens", "share", "prompts", "rollouts", "tokens a prompt", "a rollout"]
    about = (
        "Bands of the recent unassisted pass rate, by what was known before the step: never seen; 0; below 1/3; up to "
        "2/3; below 1; 1. A prompt counts once in each step that visits it."
    )
    return [ReportTable("By difficulty", columns, _bands(lines), about), *_levels(lines)]


def _over_time(lines: Lines) -> Chart:
    x = [float(line["budget/decoded_total"]) for line in lines]
    tokens = {b: [value_in(line, f"budget/tokens/{b}") or 0.0 for line in lines] for b in BANDS}
    every = [max(sum(of_step), 1.0) for of_step in zip(*tokens.values(), strict=True)]
    series = [PlotSeries(b, x, [t / all for t, all in zip(tokens[b], every, strict=True)]) for b in BANDS]
    return Chart("Tokens of a step by difficulty", "decoded tokens", "share", series, percent=True)


def _bands(lines: Lines) -> Rows:
    every = sum(total(lines, f"budget/tokens/{b}") for b in BANDS)
    rows: Rows = []
    for b in BANDS:
        tokens, prompts, rollouts = (total(lines, f"budget/{what}/{b}") for what in ("tokens", "prompts", "rollouts"))
        rows.append([
            b, shown(tokens, "count"), _part(tokens, every), f"{prompts:.0f}", f"{rollouts:.0f}",
            _each(tokens, prompts), _each(tokens, rollouts),
        ])  # fmt: skip
    return rows


def _levels(lines: Lines) -> list[ReportTable]:
    """Tokens by the task's own levels, where it mixes several."""
    names = {n for line in lines for n in line if n.startswith("budget/level/")}
    if len(names) < 2:
        return []
    levels = sorted(int(n.removeprefix("budget/level/")) for n in names)
    tokens = [total(lines, f"budget/level/{level}") for level in levels]
    rows = [[str(level), shown(t, "count"), _part(t, sum(tokens))] for level, t in zip(levels, tokens, strict=True)]
    return [ReportTable("By level", ["level", "tokens", "share"], rows, "The task's own levels of difficulty.")]


def _row(decoded: float, name: str, count: float, tokens: float | None = None) -> list[str]:
    return [name, f"{count:.0f}", shown(tokens, "count"), "–" if tokens is None else _part(tokens, decoded)]


def _zero_variance(lines: Lines, decoded: float) -> Rows:
    first, avoided = (total(lines, f"budget/zero_variance_{what}") for what in ("first", "avoided"))
    return [
        _row(decoded, "groups ordered", total(lines, "budget/groups")),
        _row(decoded, "without variance at first", first),
        _row(decoded, "avoided: mended by later rollouts", avoided),
        _row(decoded, "without variance in the end", first - avoided, total(lines, "budget/zero_variance_tokens")),
    ]


def _lost(lines: Lines, decoded: float) -> Rows:
    return [
        _row(decoded, "pruned branches", _pruned(lines), total(lines, "budget/tokens_pruned")),
        _row(decoded, "failed rollouts", total(lines, "rollout/failed"), total(lines, "budget/tokens_failed")),
    ]


def _pruned(lines: Lines) -> float:
    return sum(total(lines, name) for name in {n for line in lines for n in line if n.startswith("rollout/pruned/")})


def _arms(lines: Lines) -> list[ReportTable]:
    names = sorted({n for line in lines for n in line if n.startswith("budget/arm/")})
    rows = [[n.removeprefix("budget/arm/"), f"{total(lines, n):.0f}"] for n in names]
    return [ReportTable("Arms", ["arm", "rollouts"], rows, "Measured rollouts are paid for and do not teach.")]


def _usages(last: Mapping[str, Any]) -> list[ReportTable]:
    """What a schedule did with all rollouts so far."""
    made, tokens = ("rollout/scheduled/", "budget/scheduled_tokens/")
    rollouts = [[n.removeprefix(made), shown(last[n], "count")] for n in sorted(last) if n.startswith(made)]
    used = [[n.removeprefix(tokens), shown(last[n], "count")] for n in sorted(last) if n.startswith(tokens)]
    return [
        ReportTable(
            "What became of rollouts", ["", "rollouts"], rollouts, "Those not yet settled are submitted and no more."
        ),
        ReportTable("What became of their tokens", ["", "tokens"], used, "Masked tokens are context and do not teach."),
    ]


def _later(lines: Lines) -> list[ReportTable]:
    """Partial rollouts, recalled groups and ages, where there are any."""
    rows: Rows = []
    for name, words in LATER.items():
        told = [float(line[name]) for line in lines if line.get(name) is not None]
        if told and max(told) > 0:
            each = sum(told) / len(lines) if "staleness" not in name and "share" not in words else float(np.mean(told))
            most = max([float(line[n]) for line in lines for n in (name, name.replace("mean", "max")) if line.get(n)])
            rows.append([words, shown(each), shown(most)])
    return [ReportTable("What came from earlier steps", ["", "mean", "most"], rows)] if rows else []


def _prompts(run: Path, top: int) -> list[ReportTable]:
    """Tokens by prompt, from the newest checkpoint."""
    from rolltree.training.checkpoint import latest, read_state  # loads torch, which --help does not need

    found = latest(run / "checkpoints")
    if found is None:
        return []
    history = cast(History, loads(read_state(found)["control"]["history"]))
    spent = {uid: sum(tally.tokens for tally in arms.values()) for uid, arms in history.arms.items()}
    if not spent:
        return []
    every = sum(spent.values())
    low, middle, high = np.quantile(list(spent.values()), [0.0, 0.5, 0.9])
    rows: Rows = []
    for uid in sorted(spent, key=lambda uid: (-spent[uid], uid))[:top]:
        arms, rate = history.arms[uid], history.rate(uid)
        rows.append([
            uid, shown(spent[uid], "count"), _part(spent[uid], every), str(sum(t.seen for t in arms.values())),
            shown(rate, "share"), ", ".join(arm for arm in arms if arm != PLAIN) or "–",
        ])  # fmt: skip
    return [
        ReportTable(
            "The costliest prompts", ["prompt", "tokens", "share", "rollouts", "pass rate", "other arms"], rows,
            f"Of {len(spent)} prompts known after step {found.step}. Tokens of a prompt: least {shown(low, 'count')}, "
            f"median {shown(middle, 'count')}, 90 % below {shown(high, 'count')}, most "
            f"{shown(max(spent.values()), 'count')}. Pass rates are the recent unassisted ones.",
        )
    ]  # fmt: skip


def _part(tokens: float, every: float) -> str:
    return shown(tokens / every, "share") if every else "–"


def _each(tokens: float, count: float) -> str:
    return f"{tokens / count:.0f}" if count else "–"
