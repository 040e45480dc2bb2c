"""The page of the virtual clock: tables, the numbers behind them, and a chart."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean

from studies.clock.arms import AGENTS, ARMS, ScheduleArm
from studies.clock.hardware import Hardware
from studies.clock.measure import ClockOutcome
from studies.clock.study import PER_ENGINE, ClockRow, gains
from studies.exact.chart import lines

COMMAND = "python -m studies.clock"
Cell = Callable[[ClockOutcome], float | None]
COLUMNS: Mapping[str, tuple[Cell, str]] = {
    "tokens / s / device": (lambda o: o.tokens_per_second, ".0f"),
    "rollouts / min / device": (lambda o: o.rollouts_per_minute, ".1f"),
    "makespan / bound": (lambda o: o.over_bound, ".2f"),
    "idle": (lambda o: o.idle, ".0%"),
    "wasted": (lambda o: o.wasted, ".0%"),
    "lag mean": (lambda o: o.lag, ".1f"),
    "lag max": (lambda o: o.lag_max, ".0f"),
    "old tokens": (lambda o: o.stale_tokens, ".0%"),
    "slow prompts trained": (lambda o: o.slow, ".0%"),
    "others trained": (lambda o: o.other, ".0%"),
}


def write_page(folder: Path, rows: Sequence[ClockRow]) -> Path:
    """Write `scheduling.md`, `.json` and `.svg`; returns the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"command": COMMAND, "rows": [row.as_json() for row in rows]}
    (folder / "scheduling.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    (folder / "scheduling.svg").write_text(_chart(rows), encoding="utf-8")
    path = folder / "scheduling.md"
    path.write_text("\n\n".join(_parts(rows)) + "\n", encoding="utf-8")
    return path


def read_rows(path: Path) -> list[ClockRow]:
    """The runs behind a page, from its JSON."""
    rows: list[ClockRow] = []
    for told in json.loads(path.read_text(encoding="utf-8"))["rows"]:
        outcome = told["outcome"] | {"lags": tuple(told["outcome"]["lags"])}
        rows.append(ClockRow(**(told | {"outcome": ClockOutcome(**outcome)})))
    return rows


def _parts(rows: Sequence[ClockRow]) -> list[str]:
    h = Hardware()
    parts = [
        "# Schedules in simulated time",
        f"Regenerate with `{COMMAND}`. The scheduler of `rolltree.control.schedule` drives simulated engines, "
        "environments and a trainer; nothing is learned here. What the presets are stands in "
        "[Scheduling](../scheduling.md), the numbers in `scheduling.json`.",
        "## Beside the papers' figures", _papers(rows),
        "The papers measured real clusters against their own synchronous modes. These ratios hold under the "
        "assumptions below and for no machine in particular; where they exceed a paper's figure, "
        "the model's tail is longer or its "
        "engines emptier than the paper's were.",
        "## Assumptions",
        f"- A decode step of n sequences takes max({h.plateau * 1000:g} ms, {h.per_sequence * 1000:g} ms · n): free "
        f"up to {h.plateau / h.per_sequence:.0f} sequences, proportional beyond. An engine holds {h.slots}. Context "
        "length does not slow a step.\n"
        f"- Prefill: {1 / h.prefill:,.0f} tokens a second, during which the engine does not decode. Every continuation "
        "prefills all it has.\n"
        f"- Training: {1 / h.train:,.0f} tokens a second and device. An update of the weights takes {h.sync:g} s. "
        f"Engines that reload while rollouts run do so in {h.waves} waves.\n"
        f"- `sync` and `april` train on the engines' devices. All others have a trainer beside them with "
        f"{h.trainer_share:.0%} of all devices. Speeds are per device, the trainer's included.\n"
        f"- A batch is {PER_ENGINE} groups of 8 rollouts per engine unless a table says otherwise: below the knee. "
        "Lengths are log-normal (median 2,000, σ 1) or Pareto (least 1,100, α 1.5), cut at 16,384; rollouts of a "
        "prompt share half of the variance behind them. A stopped rollout that begins again has the same length.\n"
        "- Speeds and lags leave out the first third of a run; no failures; no filter. One seed from 8 engines on.",
        "## What the columns mean",
        "`makespan / bound`: time over the list-scheduling bound (all trained work over all engines at their peak, or "
        "the longest rollout; plus training where it needs the same devices). `idle`: decode capacity not used, for "
        "whatever reason, the empty part of a batch below the knee included. `wasted`: decoded tokens that no trained "
        "or carried rollout holds. `old tokens`: trained tokens of an older version than they train. `slow prompts "
        "trained`: of the slowest tenth of prompts asked in a run's first half, the share trained by its end (few: "
        "about 8 of 192 on 8 engines).",
        "## What came out",
        "- Most of the gain is filling engines that a synchronous tail leaves empty. At the knee (64 rollouts an "
        "engine) with constant lengths over-sampling gains nothing, and a trainer with devices of its own loses.\n"
        "- Below the knee over-sampling gains even with constant lengths: the surplus is decoded for nothing and "
        "trained an update later, one version old.\n"
        "- Throwing partials away costs most of what over-sampling wins, and the slow prompts: they hardly ever finish "
        "first. Age limits that drop cost them too. Keeping partials, or waiting at an age limit, reaches all.\n"
        "- Counting at submission alone is faster than the enforced gate and exceeds its bound of 4.\n"
        "- Waiting for what runs at every update gives up nearly all that asynchrony gains here.\n"
        "- Runs on 1,024 engines are three updates long: shorter than the four versions `areal` runs ahead. Its "
        "numbers there are of a start, not of a steady state; slow prompts are still under way.",
    ]  # fmt: skip
    parts += ["## Sizes", "![Trained tokens per second and device, by engines](scheduling.svg)"]
    chosen = [row for row in rows if row.study == "sizes"]
    for engines in sorted({row.engines for row in chosen}):
        for distribution in dict.fromkeys(row.distribution for row in chosen if row.engines == engines):
            here = [row for row in chosen if row.engines == engines and row.distribution == distribution]
            parts += [f"### {engines:,} engine{'s' * (engines > 1)}, {distribution} lengths", _table(here)]
    parts += [
        "The arms:", _arms(ARMS),
        "## Regimes", "Speed over gather-all on 8 engines, by lengths and by rollouts per engine in a batch.",
        _regimes(rows),
        "## Environments",
        "8 engines, 8 turns, log-normal answers (σ 1) of the mean given; lengths σ 0.7.",
    ]  # fmt: skip
    agents = [row for row in rows if row.study == "agents"]
    for distribution in dict.fromkeys(row.distribution for row in agents):
        parts += [
            f"### {distribution[0].upper()}{distribution[1:]}",
            _table([row for row in agents if row.distribution == distribution]),
        ]
    return [*parts, _arms({name: arm for name, arm in AGENTS.items() if name not in ARMS})]


def _papers(rows: Sequence[ClockRow]) -> str:
    regimes, sizes, agents = gains(rows, "regimes", "sync"), gains(rows, "sizes", "sync"), gains(rows, "agents", "sync")
    overlap = gains(rows, "agents", "one step ahead")

    def over(found: Mapping[tuple[str, str, int, int], float], arm: str) -> str:
        values = [value for key, value in found.items() if key[0].startswith(arm)]
        return f"{min(values):.2f}–{max(values):.2f}× (mean {mean(values):.2f}×)"

    return "\n".join([
        "| figure | published | here |", "|---|---|---|",
        f"| APRIL over synchronous | +22.5 % mean, +44 % at most | regimes: {over(regimes, 'april')} |",
        f"| AReaL over synchronous | up to 2.57× | regimes: {over(regimes, 'areal')}; "
        f"sizes: {over({k: v for k, v in sizes.items() if k[0] == 'areal'}, 'areal')} |",
        f"| RollArt over synchronous, all its variants here | 2.05× | {over(agents, 'rollart')} |",
        f"| RollArt over one step ahead | 1.35× | {over(overlap, 'rollart')} |",
    ])  # fmt: skip


def _table(rows: Sequence[ClockRow]) -> str:
    head = "| arm | " + " | ".join(COLUMNS) + " |\n|---|" + "---:|" * len(COLUMNS)
    body = [
        f"| {name} | "
        + " | ".join(_cell([cell(r.outcome) for r in rows if r.arm == name], how) for cell, how in COLUMNS.values())
        + " |"
        for name in dict.fromkeys(r.arm for r in rows)
    ]
    return "\n".join([head, *body])


def _cell(values: Sequence[float | None], how: str) -> str:
    known = [value for value in values if value is not None]
    return format(mean(known), how) if known else "–"


def _regimes(rows: Sequence[ClockRow]) -> str:
    found = gains(rows, "regimes", "sync")
    busy = sorted({key[3] for key in found})
    out = [
        "| lengths | arm | " + " | ".join(f"{8 * per} rollouts" for per in busy) + " |",
        "|---|---|" + "---:|" * len(busy),
    ]
    for distribution in dict.fromkeys(key[1] for key in found):
        for arm in ("april", "areal"):
            cells = " | ".join(f"{found[arm, distribution, 8, per]:.2f}×" for per in busy)
            out.append(f"| {distribution} | {arm} | {cells} |")
    return "\n".join(out)


def _arms(arms: Mapping[str, ScheduleArm]) -> str:
    return "\n".join(f"- **{name}**: {arm.about}." for name, arm in arms.items())


def _chart(rows: Sequence[ClockRow]) -> str:
    chosen = [row for row in rows if row.study == "sizes" and row.distribution == "log-normal"]
    series: dict[str, list[tuple[float, float, float]]] = {}
    for name in ("sync", "one step ahead", "april", "areal", "windowed FIFO", "verl", "slime", "dart"):
        for engines in sorted({row.engines for row in chosen if row.arm == name}):
            speeds = [r.outcome.tokens_per_second for r in chosen if r.arm == name and r.engines == engines]
            series.setdefault(name, []).append((engines, mean(speeds), 0.0))
    return lines("Trained tokens per second and device", "engines", "tokens / s / device", series)
