"""A table of a study as a page with its numbers, and what its screen hands on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rolltree.compare.contrast import by_items
from rolltree.compare.names import COSTS, cost_name
from rolltree.compare.regimes import regime
from rolltree.compare.stats import Asked, Corrected, corrected, judge, rule_table
from rolltree.compare.trace import write_json
from studies.screen import Screened, propose
from studies.table_runs import SIMULATED, BoardCell, TableRuns
from studies.tables import TableArm, is_flat


def write(found: TableRuns, out: Path, apart: Mapping[str, str]) -> None:
    """The table as a page, and its numbers."""
    of = list(found.traces)
    pairs = [(cell, base) for cell in of if (base := found.base(cell)) != cell]
    asked = [Asked(tuple(found.differences(a, b)), pool="points") for a, b in pairs]
    judged = dict(zip((a for a, _ in pairs), corrected(asked), strict=True))
    lines = [f"# {found.plan.title}\n", lead(found.plan.name, len(pairs)), rule_table()]
    for column in dict.fromkeys(cell.column for cell in of):
        mine = [cell for cell in of if cell.column == column]
        lines += [
            f"\n## {column}\n",
            regime(mine[0].regime).about.capitalize() + ".\n",
            _table(found, mine, judged),
            "\nCosts of a run, means over seeds:\n",
            _costs(found, mine),
        ]
    lines += _handed_on(found, judged, out)
    lines += apart_section(apart)
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{found.plan.name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(out / f"{found.plan.name}.json", {
        f"{cell.column} / {cell.row.label}": {"values": {str(s): v for s, v in found.values(cell).items()}}
        | found.numbers(cell) for cell in of
    })  # fmt: skip


def _handed_on(found: TableRuns, judged: Mapping[BoardCell, Corrected], out: Path) -> list[str]:
    """Proposals of confirmations, one for each column at the calibrated rate and each baseline in it."""
    groups: dict[tuple[str, BoardCell], list[Screened]] = {}
    for cell, test in judged.items():
        numbers = found.numbers(cell)
        if cell.factor == 1.0 and not is_flat(cell.row):
            asked = Screened(_whole(found, cell), test.p, not numbers["idle"])
            groups.setdefault((cell.regime, found.base(cell)), []).append(asked)
    lines: list[str] = []
    for (name, base), rows in groups.items():
        path = out / "proposed" / f"{name}-{found.plan.name}-{base.row.label.replace(' ', '-')}.json"
        seeds = len(found.values(base))
        why = f"handed on by the table {found.plan.name} ({seeds} seeds of {base.row.label})"
        chosen = propose(path, name, _whole(found, base), rows, why)
        if chosen:
            lines.append(f"- {name}, over {base.row.label}: {', '.join(a.label for a in chosen)} (`{path.name}`)")
    return ["\n## Handed on to a confirmation\n", *lines] if lines else []


def _whole(found: TableRuns, cell: BoardCell) -> TableArm:
    """A row with the knobs that its table gives all rows."""
    return TableArm(cell.row.label, cell.row.recipe, (*found.plan.settings, *cell.row.knobs))


def apart_section(apart: Mapping[str, str]) -> list[str]:
    """Lines of a page: by row, where its difference could come from."""
    if not apart:
        return []
    about = "What each row has that the row it is held against has not.\n"
    return ["\n## Where a difference could come from\n", about, *(f"- {row}: {words}" for row, words in apart.items())]


def lead(name: str, contrasts: int) -> str:
    """How a table is to be read."""
    return (
        f"Written by `python -m studies.board {name}`. Rate and updates are those calibrated for the "
        "baseline of each regime, the same for every row but those of recipes that are made of several updates a step "
        "(docs/howto/regimes.md#calibration); the costs say how many there were. "
        f"{contrasts} comparisons are one family: the ends of their "
        "intervals stand where Holm's procedure puts them, at 95 % for all together, from six comparisons on with "
        "moderated variances; p asks "
        "from one side whether a row is ahead, and 0.025 is where its interval leaves 0; q is Benjamini and "
        "Hochberg's. Differences are paired over the seeds that both have; a mean, and behind ± the standard deviation "
        "over seeds, is of all seeds of a row. x is 0. A tree is held against its flat control, which is the same "
        "recipe with as many "
        "independent rollouts; everything else against the row that the column *to* names. A run collapsed that ends "
        "below half of where it "
        "began; it counts in every mean. Void, which is no verdict, is a row whose counter never moved in half of its "
        "runs or more, and what is held against a row that collapsed in more than half of its runs or stands at 90 % "
        "or above. Seeds and "
        "items: the difference at the last evaluation alone, with a bootstrap interval that draws seeds and, within "
        "each, held-out items again; it is corrected for nothing, too narrow with few seeds, and decides nothing. "
        "Simulated seconds are those of the run's own lengths under its own schedule on "
        "the stated cluster of docs/measured/scheduling.md.\n"
    )


def _table(found: TableRuns, of: Sequence[BoardCell], judged: Mapping[BoardCell, Corrected]) -> str:
    head = ["row", found.metric[of[0].column], "difference", "to", "p (Holm)", "q (BH)", "verdict", "collapsed",
            "acted", "seeds and items"]  # fmt: skip
    rows = [head, ["---"] * len(head)]
    for cell in of:
        numbers, seen = found.numbers(cell), list(found.values(cell).values())
        acted = "–" if numbers["acted"] is None else f"{numbers['acted']:.3g}"
        spread = f" ± {100 * float(np.std(seen, ddof=1)):.1f}" if len(seen) > 1 else ""
        test = judged.get(cell)
        rows.append([
            cell.row.label, f"{100 * float(np.mean(seen)):.1f}{spread} %", *_tested(found, cell, test),
            f"{numbers['collapsed']:.0f} of {len(seen)}", acted, _items(found, cell),
        ])  # fmt: skip
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _items(found: TableRuns, cell: BoardCell) -> str:
    """The difference with held-out items drawn again too, where the runs kept what each item got."""
    base = found.base(cell)
    e = None if base == cell else by_items(found.traces[cell], found.traces[base])
    return "–" if e is None else f"{100 * e.estimate:+.1f} ({100 * e.low:+.1f} to {100 * e.high:+.1f})"


def _costs(found: TableRuns, of: Sequence[BoardCell]) -> str:
    """Everything the runs of a column spent."""
    numbers = {cell: found.numbers(cell) for cell in of}
    names = [n for n in (*COSTS, SIMULATED) if any(numbers[cell][n] is not None for cell in of)]
    rows = [["row", *map(cost_name, names)], ["---"] * (1 + len(names))]
    rows += [[c.row.label, *("–" if (v := numbers[c][n]) is None else f"{v:.4g}" for n in names)] for c in of]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _tested(found: TableRuns, cell: BoardCell, test: Corrected | None) -> list[str]:
    if test is None:
        return ["–"] * 5
    e, base = test.effect, found.base(cell)
    said = f"{100 * e.estimate:+.1f} ({100 * e.low:+.1f} to {100 * e.high:+.1f})"
    why = found.lost(base) or ("never acted" if found.numbers(cell)["idle"] else "")
    return [said, base.row.label, f"{test.p_holm:.3g}", f"{test.p_bh:.3g}", f"void: {why}" if why else judge(e)]
