"""What was found, as pages: one table of all evidence, and the section of a recipe's own page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import mean

from rolltree.lab.claim import Claim, claims
from rolltree.lab.entry import EvidenceEntry
from rolltree.lab.names import row_name

_HEAD = """\
# Evidence

What each recipe claims, measured against the baseline its card names. Written from `evidence/*.json` by `python -m
rolltree.lab.recipe_pages`; `rolltree evidence NAME` makes an entry, `rolltree evidence NAME --verify` repeats a seed
of it. Both sides start from the embedded policy, see the same prompts per seed and spend the same decoded tokens. An
interval is a paired t interval over seeds at 95 %. **holds**: the whole interval lies beyond the least effect that
the card counts. **fails**: the whole interval lies short of it. **no difference found**: neither; three seeds of a
small policy tell large effects from none and say little about small ones. The verdicts are about these tasks at this
size, not about the models of the papers.
"""


def overview(entries: Sequence[EvidenceEntry]) -> str:
    """Every claim in one place: what was asked, what came out, what it cost, and what has not been run."""
    trained = [e for e in entries if e.kind == "training"]
    checked = [e for e in entries if e.kind != "training"]
    stored = {e.name for e in entries}
    open_claims = [c for c in claims() if c.name not in stored]
    counts = Counter(e.outcome for e in entries)
    told = ", ".join(f"{counts[o]} × {o}" for o in sorted(counts)) or "none yet"
    parts = [_HEAD, f"\n{len(entries)} entries: {told}.\n"]
    if trained:
        parts.append("\n## Training\n\n" + _table(
            ["recipe", "question", "recipe", "baseline", "difference", "pass@1, both", "seconds, both", "verdict"],
            ([_link(e), _question(e), *_sides(e), effect(e), _also(e, "pass@1", share=True), _also(e, "seconds"),
              e.outcome] for e in trained),
        ))  # fmt: skip
    if checked:
        parts.append("\n## Exact and simulated\n\n" + _table(
            ["recipe", "question", "recipe", "baseline", "difference", "verdict"],
            ([_link(e), _question(e), *_sides(e), effect(e), e.outcome] for e in checked),
        ))  # fmt: skip
    if open_claims:
        parts.append(
            "\n## Not measured yet\n\n"
            + "".join(f"- [{c.name}](../recipes/{c.name}.md): {_open(c)}\n" for c in open_claims)
        )
    return "".join(parts)


def found(entry: EvidenceEntry | None) -> str:
    """The evidence section of a recipe's page."""
    if entry is None:
        return "Not measured yet. Nothing is claimed here beyond that the parts do what their tests say."
    rows = ([str(r.seed), f"{r.value:.4g}", f"{r.baseline:.4g}"] for r in entry.results)
    seeds = _table(["seed", entry.name, str(entry.question["baseline"])], rows)
    asked = f"**Question.** {_question(entry)}." + (
        f" Knobs: `{' '.join(entry.question['settings'])}`." if entry.question["settings"] else ""
    )
    beside = [
        f"{name} {_also(entry, name, share=name.startswith('pass@'))}"
        for name in ("pass@1", "pass@8", "decoded_per_leaf", "unique", "seconds")
        if name != entry.question["metric"] and _also(entry, name)
    ]
    more = f"\n\nBeside it (means, recipe and baseline): {'; '.join(beside)}." if beside else ""
    return f"{asked}\n\n**{entry.outcome}**: {entry.words}\n\n{seeds}{more}\n\nRepeat it: `{entry.command}`"


def effect(entry: EvidenceEntry) -> str:
    """The difference with its interval."""
    e = entry.effect
    if e.low == e.high:
        return f"{e.estimate:.4g}"
    if " points" in entry.words:
        return f"{100 * e.estimate:+.1f} points ({100 * e.low:+.1f} to {100 * e.high:+.1f})"
    return f"{e.estimate:+.3g} ({e.low:+.3g} to {e.high:+.3g})"


def _question(entry: EvidenceEntry) -> str:
    q = entry.question
    than = f"{q['direction']} {q['metric']} than {q['baseline']}" + (f", by {q['least']:g}" if q["least"] else "")
    where = f", {q['task']}" + (f" level {q['level']}" if q["level"] else "") + f", {q['budget'] // 1000}k tokens"
    return than + (where if q["task"] else "") + f", {len(entry.results)} seeds"


def _open(claim: Claim) -> str:
    q = claim.question
    return f"{q.direction} {q.metric} than {q.baseline}" + (f" on {q.task}" if q.task else "")


def _sides(entry: EvidenceEntry) -> list[str]:
    scale, unit = (100, " %") if " points" in entry.words else (1, "")
    sides = mean(r.value for r in entry.results), mean(r.baseline for r in entry.results)
    return [f"{scale * side:.3g}{unit}" for side in sides]


def _also(entry: EvidenceEntry, name: str, *, share: bool = False) -> str:
    pairs = [r.also[row_name(name)] for r in entry.results if row_name(name) in r.also]
    if not pairs:
        return ""
    sides = mean(a for a, _ in pairs), mean(b for _, b in pairs)
    return " / ".join(f"{100 * side:.0f} %" if share else f"{side:.3g}" for side in sides)


def _link(entry: EvidenceEntry) -> str:
    return f"[{entry.name}](../recipes/{entry.name}.md)"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"
