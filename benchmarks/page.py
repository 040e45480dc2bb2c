"""The tables of docs/speed.md, written from the baselines between marks: `python benchmarks/page.py`.

Prose is kept by hand. A table whose baseline is not there has no rows.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BASELINES, PAGE = ROOT / "benchmarks" / "baselines", ROOT / "docs" / "speed.md"
END = "<!-- end of table -->"
NAMES = {
    "uniform": "uniform lengths",
    "ragged": "ragged lengths with real stops",
    "forked": "groups of eight from one prompt",
    "tree": "trees of depth three, four ways",
}
WANTED = {"uniform-256": 1.7, "ragged-256": 3, "forked-256": 8, "tree-256": 10}
GUESSES = ("ngram", "suffix", "suffix:1+3x4", "adjacent", "heads:3x2", "nano:4", "suffix:auto")
LARGE = ("ngram", "suffix")
"""Drafters that are tried before SmolLM2 too."""
Record = dict[str, Any]


def begin(name: str) -> str:
    """The line before a table."""
    return f"<!-- table {name}: written by benchmarks/page.py -->"


def case_of(drafter: str) -> str:
    """A drafter's name as a part of a file's name."""
    return drafter.replace(":", "-")


def rows(name: str) -> list[Record]:
    """The rows of a baseline; none where there is no such file."""
    path = BASELINES / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []


def rendered(text: str) -> str:
    """The page with all tables as the baselines are."""
    for name, make in TABLES.items():
        before, begun, rest = text.partition(begin(name))
        _, ended, after = rest.partition(END)
        if not begun or not ended:
            raise SystemExit(f"{PAGE} has no lines {begin(name)} and {END}, between which a table goes; add them")
        text = f"{before}{begin(name)}\n\n{make()}\n\n{END}{after}"
    return text


def write() -> None:
    """Write the tables again."""
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def _table(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    line = "|" + "|".join("---" if i == 0 else "---:" for i in range(len(head))) + "|"
    return "\n".join(["| " + " | ".join(head) + " |", line, *("| " + " | ".join(row) + " |" for row in body)])


def _ratio(row: Record, digits: int = 2) -> str:
    return _spread([row["ratio_min"], row["ratio_median"], row["ratio_max"]], digits)


def _spread(values: Sequence[float] | None, digits: int = 2) -> str:
    if values is None:
        return ""
    low, middle, high = (f"{v:.{digits}f}" for v in values)
    return f"{low} / **{middle}** / {high}"


def _measured(names: Iterable[str]) -> str:
    """When, by which clock and under which load some baselines were measured."""
    paths = [BASELINES / f"{name}.json" for name in names]
    on = [json.loads(path.read_text(encoding="utf-8"))["machine"] for path in paths if path.is_file()]
    if not on:
        return ""
    days, loads = sorted({m["measured"] for m in on}), [m["load"][0] for m in on]
    clock = " and ".join(sorted({"processor time" if m["clock"] == "cpu" else "the wall clock" for m in on}))
    load = f"{min(loads):g}" + (f" to {max(loads):g}" if len(set(loads)) > 1 else "")
    first, last = days[0], days[-1]
    when = first if first == last else f"{first} to {last}"
    return f"\n\nBy {clock}, {when}, at a load of {load}."


def _verdict(median: float, wanted: float) -> str:
    return "reached" if median >= wanted else "**missed**"


def _summary() -> str:
    body = list[list[str]]()

    def line(what: str, found: Sequence[Record], wanted: float, value: Callable[[Record], float]) -> None:
        body.extend([what, f"{value(row):.2f}", f"{wanted:g}", _verdict(value(row), wanted)] for row in found)

    def median(row: Record) -> float:
        return row["ratio_median"]

    for name, wanted in WANTED.items():
        case, batch = name.split("-")
        line(f"local engine, {NAMES[case]}, batch {batch}", rows(f"serving/{name}"), wanted, median)
    training = {(r["case"], r["trees"], r["prompt"]): r for r in (*rows("training"), *rows("step"))}
    for key, what, wanted in (
        (("packed", 1, 256), "packed training, 256, 8 × 64, uniform", 4),
        (("packed ragged", 1, 256), "packed training, 256, 8 × 64, ragged", 4),
        (("grpo step", 16, 20), "GRPO step, prompt 20", 2),
        (("grpo step", 8, 128), "GRPO step, prompt 128", 2),
    ):
        line(what, [training[key]] if key in training else [], wanted, median)
    line("strategy and hand over vLLM", _against_offline("seconds")[:1], 0.97, lambda r: r["median"])
    for name, what in (("hand", "hand"), ("scheduler", "scheduler alone")):
        for row in rows(name)[:1]:
            rate = row["rate_median"]
            body.append([f"{what}, operations a second", f"{rate:,.0f}", "20,000", _verdict(rate, 20_000)])
    for row in (r for r in rows("viewing") if r["page"] == "deep tree"):
        seconds = row["seconds"][1]
        body.append(["one deep tree of 200,000 nodes, opened in Chromium", f"{seconds:.1f} s", "2 s",
                     "reached" if seconds <= 2 else "**missed**"])  # fmt: skip
    return _table(["what", "measured", "wanted", ""], body)


def _engine() -> str:
    cases = [f"{name}-{batch}" for name in NAMES for batch in (64, 256)]
    body = [
        [NAMES[row["case"]], str(row["batch"]), _ratio(row), f"{row['ours']:,.0f}", f"{row['theirs']:,.0f}",
         f"{WANTED[case]:g}" if case in WANTED else ""]
        for case in cases for row in rows(f"serving/{case}")
    ]  # fmt: skip
    head = ["case", "batch", "ratio", "tokens a second", "`generate`", "wanted"]
    return _table(head, body) + _measured(f"serving/{case}" for case in cases)


def _shared() -> str:
    names = ["serving/shared-forked", "serving/shared-tree"]
    body = [
        [NAMES[r["case"]], str(r["batch"]), _ratio(r), f"{r['shared']:,.0f}", f"{r['apart']:,.0f}"]
        for name in names for r in rows(name)
    ]  # fmt: skip
    return _table(["case", "batch", "shared over apart", "shared", "apart"], body) + _measured(names)


def _order() -> str:
    body = [[r["order"], str(r["first"]), f"{r['mean']:.0f}", str(r["last"])] for r in rows("serving/order")]
    return _table(["order", "first whole tree after", "the mean one", "the last"], body)


def _cancel() -> str:
    body = [
        [NAMES[r["case"]], _spread(r["before"], 1), _spread(r["cancelling"], 1), _spread(r["after"], 1)]
        for r in rows("serving/cancel")
    ]
    return _table(["case", "a step before", "cancelling", "a step after"], body) + _measured(["serving/cancel"])


def _shares() -> str:
    found = rows("serving/shares")
    kinds = list(found[0]["shares"]) if found else []
    body = [[kind, *(f"{100 * r['shares'][kind]:.0f} %" for r in found)] for kind in kinds]
    left = [f"{100 * (1 - sum(r['shares'].values())):.0f} %" for r in found]
    return _table(["of a step", *(NAMES[r["case"]] for r in found)], [*body, ["the rest", *left]]) + _measured(
        ["serving/shares"]
    )


def _guesses() -> str:
    return _guessed([f"serving/guesses-{case_of(drafter)}" for drafter in GUESSES])


def _large() -> str:
    return _guessed([f"serving/large-{case_of(drafter)}" for drafter in LARGE])


def _guessed(names: Sequence[str]) -> str:
    found = sorted((r for name in names for r in rows(name)), key=lambda r: r["batch"])
    body = [
        [f"`{r['drafter']}`", str(r["batch"]), f"{r['acceptance']:.0%}".replace("%", " %"),
         f"{r['tokens_per_forward']:.2f}", f"{r['without']:,.0f}", _ratio(r)]
        for r in found
    ]  # fmt: skip
    head = ["[drafter and shape](howto/speculate.md)", "batch", "guesses that were right",
            "tokens per request and forward pass", "tokens a second without", "ratio to no guesses"]  # fmt: skip
    return _table(head, body) + _measured(names)


def _packed() -> str:
    found = {(r["case"], r["trees"], r["prompt"]): r for r in rows("training")}
    body = [
        [f"{r['trees']}, {r['prompt']}, {r['leaves']} × {r['longest']}", _ratio(r, 1),
         _ratio(found["packed ragged", trees, prompt], 1)]
        for (case, trees, prompt), r in found.items() if case == "packed"
    ]  # fmt: skip
    return _table(["trees, prompt, leaves × longest", "uniform lengths", "ragged lengths"], body) + _measured(
        ["training"]
    )


def _packings() -> str:
    shapes = dict[tuple[Any, ...], dict[str, Record]]()
    for r in rows("packings"):
        shapes.setdefault((r["trees"], r["prompt"], r["leaves"], r["longest"], r["ragged"]), {})[r["way"]] = r
    body = [
        [f"{trees}, {prompt}, {leaves} × {longest}{', ragged' if ragged else ''}",
         f"{ways['rolltree']['ratio_at_equal_shares']:.2f}", *(_ratio(ways[w]) for w in WAYS)]
        for (trees, prompt, leaves, longest, ragged), ways in shapes.items()
    ]  # fmt: skip
    head = ["trees, prompt, leaves × longest", "at equal shares", *WAYS.values()]
    return _table(head, body) + _measured(["packings"])


WAYS = {"rolltree": "Rolltree", "TreeRow": "TRL's `TreeRow`", "prefix-grouper": "`prefix-grouper`"}


def _grpo() -> str:
    body = [
        [f"{r['prompt']}, {r['leaves']} × {r['longest']} ({r['trees']} prompts)", _ratio(r), "2"]
        for r in rows("step")
    ]  # fmt: skip
    return _table(["prompt, group × longest", "ratio", "wanted"], body) + _measured(["step"])


def _parts() -> str:
    found = [r for r in rows("step_parts") if "linear" in r]
    body = [
        [what, *(f"{r[key]:.0f}" for r in found), f"{sum(r[key] for r in found):.0f}"]
        for what, key in (("linear layers", "linear"), ("products of attention", "attention"), ("the rest", "rest"))
    ]
    whole = sum(r[key] for r in found for key in ("linear", "attention", "rest"))
    body += [["TRL, all", "", "", f"{r['all']:.0f}"] for r in rows("step_parts") if "linear" not in r]
    body.insert(3, ["all", *(f"{r['linear'] + r['attention'] + r['rest']:.0f}" for r in found), f"{whole:.0f}"])
    return _table(["µs a token", *(r["part"] for r in found), "both"], body) + _measured(["step_parts"])


def _overlap() -> str:
    found = {(r["schedule"], r["sync_threads"]): r for r in rows("overlap")}
    body = [
        [f"`{schedule}`", _ratio(one), _ratio(found[schedule, 2]),
         f"{one['sync_engine_idle']:.2f} → {one['engine_idle']:.2f}",
         f"{one['sync_trainer_idle']:.2f} → {one['trainer_idle']:.2f}"]
        for (schedule, threads), one in found.items() if threads == 1
    ]  # fmt: skip
    head = ["schedule", "over `sync` on one thread", "over `sync` on both", "engine without a rollout", "trainer idle"]
    return _table(head, body) + _measured(["overlap"])


def _viewing() -> str:
    body = [
        [r["page"], f"{r['nodes']:,}", _spread(r["seconds"]), _spread(r["over_few"]), _spread(r["over_bare"])]
        for r in rows("viewing") if "bare" not in r["page"]
    ]  # fmt: skip
    return _table(["page", "nodes", "seconds", "over few nodes", "over the bare page"], body) + _measured(["viewing"])


def _against_offline(field: str) -> list[Record]:
    """Tokens a second of two arms over offline, and of the hand over the other, round by round."""
    rounds = dict[int, dict[str, float]]()
    for r in rows("vllm_overhead"):
        rounds.setdefault(r["round"], {})[r["arm"]] = r["tokens"] / r[field]
    out = list[Record]()
    for a, b in (("hand", "offline"), ("async", "offline"), ("hand", "async")) if rounds else ():
        ratios = [arms[a] / arms[b] for arms in rounds.values()]
        out.append({"a": a, "b": b, "min": min(ratios), "median": statistics.median(ratios), "max": max(ratios)})
    return out


def _vllm() -> str:
    arms = {"hand": "hand", "async": "`AsyncLLM`", "offline": "offline"}

    def spread(r: Record) -> str:
        return _spread([r["min"], r["median"], r["max"]])

    body = [
        [f"{arms[w['a']]} over {arms[w['b']]}", spread(w), spread(c)]
        for w, c in zip(_against_offline("seconds"), _against_offline("cpu_seconds"), strict=True)
    ]
    return _table(["tokens a second", "wall clock", "processor time"], body) + _measured(["vllm_overhead"])


TABLES: dict[str, Callable[[], str]] = {
    "summary": _summary,
    "engine": _engine,
    "shares": _shares,
    "shared": _shared,
    "order": _order,
    "cancel": _cancel,
    "guesses": _guesses,
    "large": _large,
    "packed": _packed,
    "packings": _packings,
    "grpo": _grpo,
    "parts": _parts,
    "overlap": _overlap,
    "viewing": _viewing,
    "vllm": _vllm,
}


if __name__ == "__main__":
    write()
