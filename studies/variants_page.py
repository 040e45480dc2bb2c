"""The page of `studies.variants`: every switch with its numbers, and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from studies.variants import VariantRow

ABOUT: Mapping[str, str] = {
    "echo: stems=16 (the gate never opens) → 8": "The released gate asks for entropies and confidences that its own "
    "signals cannot reach, so a run is plain sampling. The other side forks at thresholds of our own.",
    "echo: prune=none (thresholds never reached) → truncate": "The released confidence thresholds are never reached; "
    "the other side ends paths by doubt, at thresholds of our own, and lets them vote and teach as they stand.",
    "rose: form=literal → kept": "With cosines above 0 the published sign makes certain tokens score highest.",
    "rose: consume=False → True": "The released search forks one place again and again until a higher one appears.",
    "rose: values=position → prefix": "The released estimator keeps one value per position and merges different "
    "prefixes of one length. Both credits are of the same trees.",
    "treepo: fill=glued (stale request) → boundary": "The released fallback shortens the record of a leaf and not the "
    "request, so the new tokens stand behind a prefix they were not written behind.",
    "latr: fill=copy → restart": "The released group is filled up with copies of its first leaf.",
    "arpo: reference=0 (stale table) → None (first turn of the path)": "The released reference is a table by running "
    "index that is never reset. A fixed number stands in for it: it has nothing to do with the path.",
    "aepo: keep_probe=False → True": "The released pre-monitoring plays a whole rollout and throws it away.",
    "mars2: gamma=0 (parent index lost) → 0.3": "The released workflow does not write down a node's parent, so the "
    "shaping of rewards has nothing to shape. Trees of two exact policies, 16 attempts each.",
    "mars2: in_place=True → False": "The released function changes rewards while it reads them, in node order.",
    "mars2: prior=normal (mean 0) → beta, 8 attempts": "A prior mean of 0 lies at the bottom of scores in [0, 1], so "
    "what was tried tends to look better than what was not.",
    "mars2: prior=normal (mean 0) → beta, 16 attempts": "The same with twice as many attempts.",
    "ets: cost=nodes (as released) → tokens": "The program counts nodes; a comment in the released code says that "
    "tokens should come later.",
    "ets: cover=0 → 1.5": "The coverage term, which is what ETS adds to a search by reward and size.",
    "ets: select=rebase → ets": "The whole program against REBASE alone.",
}
"""What each switch is, by recipe and switch."""

NOT_RUN = """## Switches without a run

| recipe | released code | why there is nothing to run |
|---|---|---|
| echo | the penalty of pruned paths is exported and read by no trainer | no number can differ |
| treepo | repetition priority and first-step maximum stand under keys the worker does not read | they are knobs here, \
`repeat` and `first_most`; released = `repeat=False`, `first_most=0` |
| treepo | a subgroup counts once per segment without a fork | a rule of the credit: see [credit](../credit.md) |
| cleaner | error patterns of one sandbox | `errors`; which replies count as failed belongs to the sandbox |
"""


def write_page(folder: Path, rows: Sequence[VariantRow], clip: tuple[float, float] | None, items: int) -> Path:
    """Write `variants.md` and return its path."""
    parts = [
        "# Bugs and inert switches of released code, both ways",
        "Regenerate with `python -m studies.variants`. Each switch is a knob of its recipe; both sides run on the "
        f"same {items} prompts and seeds with a frozen policy (the embedded one; for mars2 two exact ones on "
        f"{4 * items} prompts). Differences are here minus released with a 95 % interval over trees; a switch "
        "*matters* on a measure where the interval leaves 0 out. These are differences of rollouts and credit, not of "
        "training.",
        "\n".join(["| recipe | switch: released → here | matters for | no difference seen in |", "|---|---|---|---|",
                   *(_summary(*key, list(of)) for key, of in groupby(rows, key=lambda row: (row.recipe, row.switch)))]),
    ]  # fmt: skip
    for (recipe, switch), of in groupby(rows, key=lambda row: (row.recipe, row.switch)):
        mine = list(of)
        parts += [
            f"## {recipe}: {switch}", ABOUT[f"{recipe}: {switch}"],
            "\n".join(["| measure | released | here | difference |", "|---|---:|---:|---:|", *map(_line, mine)]),
            verdict(mine),
        ]  # fmt: skip
    if clip is not None:
        low, high = clip
        parts += [
            "## echo: a clip range per sequence",
            f"ε = 0.05 + 0.15 σ(4(1 − C)) lies between {low:.4f} and {high:.4f} on real leaves, because C, a mean over "
            "the five likeliest tokens, is at most 1/5. The constant 0.196 stands in for it: the largest difference is "
            f"{max(abs(low - 0.196), abs(high - 0.196)):.4f}.",
        ]
    parts.append(NOT_RUN.rstrip())
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "variants.md"
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return path


def verdict(rows: Sequence[VariantRow]) -> str:
    """What the numbers of one switch say, in a sentence."""
    yes = [row.measure for row in rows if row.matters]
    no = [row.measure for row in rows if not row.matters]
    if not yes:
        return f"**No difference is seen** in {_and(no)}."
    rest = f"; none is seen in {_and(no)}" if no else ""
    return f"**It matters** for {_and(yes)}{rest}."


def _summary(recipe: str, switch: str, rows: Sequence[VariantRow]) -> str:
    yes, no = (", ".join(row.measure for row in rows if row.matters is side) for side in (True, False))
    return f"| {recipe} | {switch} | {yes or '–'} | {no or '–'} |"


def _line(row: VariantRow) -> str:
    e = row.effect
    effect, low, high = (_short(value, "+") for value in (e.estimate, e.low, e.high))
    return f"| {row.measure} | {_short(row.released)} | {_short(row.here)} | {effect} [{low}, {high}] |"


def _short(value: float, sign: str = "") -> str:
    """Three digits; what is 0 but for rounding is 0."""
    return f"{0.0 if abs(value) < 1e-12 else value:{sign}.3g}"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
