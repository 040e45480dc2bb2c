"""Entries judged together: what stands in one table is one family, corrected as a whole. Void ones are not in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from rolltree.compare.names import is_share
from rolltree.compare.stats import Asked, Corrected, Direction, Outcome, corrected, judge
from studies.lab.brevity import price
from studies.lab.entry import EvidenceEntry, question_of

FAMILIES = ("training", "simulated")
"""Kinds of entries that are one family each."""
AHEAD: tuple[Outcome, ...] = ("holds", "no difference found")
"""Verdicts of an entry's own interval that leave it possible that the claim is true."""
HANDED_ON = 0.2
"""One-sided p up to which a screen hands an open claim on to fresh seeds."""
CANDIDATES = 12
"""Most open claims of a family that it hands on."""


@dataclass(frozen=True, slots=True)
class FamilyVerdict:
    """An entry as its table judges it."""

    outcome: Outcome
    found: Corrected | None
    """None where nothing is corrected: void entries, and exact ones, which have no randomness."""
    family: int
    """Entries that are corrected together."""


def together(entries: Sequence[EvidenceEntry]) -> dict[str, FamilyVerdict]:
    """Verdicts by name: training is one family, simulated checks are another."""
    out = {e.name: FamilyVerdict(e.outcome, None, 0) for e in entries}
    for kind in FAMILIES:
        family = [e for e in entries if e.kind == kind and e.outcome != "void"]
        made = corrected([_asked(e) for e in family])
        for entry, found in zip(family, made, strict=True):
            outcome = judge(found.effect, direction=_direction(entry), least=float(entry.question["least"]))
            if outcome == "holds" and price(question_of(entry), entry.results) is not None:
                outcome = "worse"
            out[entry.name] = FamilyVerdict(outcome, found, len(family))
    return out


def handed_on(entries: Sequence[EvidenceEntry], verdicts: Mapping[str, FamilyVerdict]) -> list[str]:
    """What waits for fresh seeds: all that holds and, of each family, what is likeliest ahead of what is left open."""
    out = [e.name for e in entries if verdicts[e.name].outcome == "holds" and e.kind != "exact"]
    for kind in FAMILIES:
        open_ = [
            (found.p, e.name) for e in entries
            if e.kind == kind and e.outcome in AHEAD and verdicts[e.name].outcome == "no difference found"
            and (found := verdicts[e.name].found) is not None and found.p <= HANDED_ON
        ]  # fmt: skip
        out += [name for _, name in sorted(open_)[:CANDIDATES]]
    return out


def confirmed(entries: Sequence[EvidenceEntry]) -> dict[str, FamilyVerdict]:
    """What came of asking again on fresh seeds, by name; all that were asked again are a family of their own."""
    again = [replace(e, results=e.confirmation.results, effect=e.confirmation.effect, outcome=e.confirmation.outcome)
             for e in entries if e.confirmation is not None]  # fmt: skip
    return together(again)


def counted(verdicts: Mapping[str, FamilyVerdict]) -> dict[str, int]:
    """How many of each verdict there are; void is counted as what it is."""
    found: list[str] = [v.outcome for v in verdicts.values()]
    return {outcome: found.count(outcome) for outcome in sorted(set(found))}


def dropped(entries: Sequence[EvidenceEntry]) -> str:
    """A sentence on what entries said before they were asked something else or made again: it was tried too."""
    found = [answer.outcome for e in entries for answer in e.earlier]
    if not found:
        return "Nothing was tried and dropped."
    told = ", ".join(f"{found.count(outcome)} × {outcome}" for outcome in sorted(set(found)))
    of = sum(bool(e.earlier) for e in entries)
    return f"Tried and dropped, each by its own interval: {len(found)} earlier answers of {of} entries ({told})."


def _asked(entry: EvidenceEntry) -> Asked:
    metric = str(entry.question["metric"])
    share = entry.kind == "training" and is_share(metric)
    return Asked(
        tuple(r.value - r.baseline for r in entry.results), _direction(entry), float(entry.question["least"]),
        "points" if share else entry.name,
    )  # fmt: skip


def _direction(entry: EvidenceEntry) -> Direction:
    return cast(Direction, entry.question["direction"])
