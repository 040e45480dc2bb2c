"""A rollout card as a page of markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rolltree.lab.card import RolloutCard
from rolltree.lab.card_numbers import Spread
from rolltree.lab.report.page import duration, shown


def markdown(card: RolloutCard) -> str:
    """The page: one table a topic, a sentence where a number needs one."""
    parts = [
        f"# Rollout card: {_cell(card.source)}",
        _lead(card),
        *_table("Generate", _generate(card)),
        *_table("Filter", _filter(card)),
        *_table("Control", _control(card)),
        *_table("Replay and weights", _replay(card)),
        *_table("How the trained-on distribution differs from plain sampling", _departures(card)),
        "Plain sampling means independent samples of the current policy at temperature 1 with nothing chosen, cut, "
        "kept or left out. Shares are of policy tokens on trained paths, each counted once, unless a row says so.",
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _lead(card: RolloutCard) -> str:
    where = f"the forests of {len(card.steps)} saved steps" if card.steps else "one forest"
    words = [f"Counted from {where}: {card.numbers.topology.trees} prompts, {card.numbers.topology.leaves} leaves."]
    if card.settings is not None:
        task = card.settings.get("task") or ["?", "?"]
        words.insert(
            0, f"{_recipe(card)} on {task[0]} (level {task[1]}) from the policy `{card.settings.get('model')}`."
        )
    if card.totals:
        words.append(f"The whole run: {card.totals['steps']:.0f} steps, {duration(card.totals['seconds'])}.")
    return " ".join(words)


def _recipe(card: RolloutCard) -> str:
    name = (card.settings or {}).get("parts", {}).get("name", "?")
    if card.recipe is None:
        return f"Recipe `{name}` (not one of this version's)"
    return f"{card.recipe.title} (`{name}`, {card.recipe.paper})"


def _generate(card: RolloutCard) -> list[tuple[str, str]]:
    n, t = card.numbers, card.numbers.topology
    guided = {role: count for role, count in n.tokens.items() if role in ("hint", "splice", "template")}
    return [
        ("topology", t.kind),
        ("strategy", (card.parts or {}).get("strategy", "not recorded")),
        ("leaves per prompt", _spread(t.group)),
        ("nodes on a path", _spread(t.depth)),
        ("environment answers per path", _spread(t.turns)),
        ("forks below the root, by birth", _counts(t.forks)),
        ("effective branches at the root", shown(t.branches)),
        ("sharing (tokens on paths per token decoded)", shown(t.sharing)),
        ("tokens by author", _counts(n.tokens)),
        ("guidance", f"{_counts(guided)} tokens" if guided else "none in the trees"),
        ("sampling", _knobs(card, "train", "temperature", "max_tokens")),
    ]


def _filter(card: RolloutCard) -> list[tuple[str, str]]:
    parts, made = (card.settings or {}).get("parts", {}), card.parts or {}
    s = card.numbers.selection
    return [
        ("group filters", made.get("filters") or _listed(parts.get("filters"))),
        ("shaping of outcomes", made.get("shapers") or _listed(parts.get("shapers"))),
        ("rounds of sampling per step, at most", str(parts.get("rounds", "not recorded"))),
        ("leaves by usage", _counts(card.numbers.fates)),
        ("mean outcome, all judged and trained on", f"{shown(s.reward_all)} and {shown(s.reward_trained)}"),
        ("mean length, all judged and trained on", f"{shown(s.length_all)} and {shown(s.length_trained)}"),
    ]


SPENT = ("budget/decoded", "budget/prefilled", "budget/leaves", "budget/env_steps", "budget/judge_calls")


def _control(card: RolloutCard) -> list[tuple[str, str]]:
    totals = card.totals or {}
    spent = {k.removeprefix("budget/"): v for k, v in totals.items() if k in SPENT and v}
    return [
        ("recipe's knobs", _pairs((card.settings or {}).get("recipe"))),
        ("prompts per step", _knobs(card, "train", "prompts")),
        ("limits of the run", _knobs(card, "train", "steps", "decoded", "seconds")),
        ("spent in all", ", ".join(f"{name} {shown(v, 'count')}" for name, v in spent.items()) or "not recorded"),
        ("trained tokens", shown(totals.get("budget/trained"), "count")),
        ("why rollouts ended", _counts(card.numbers.finishes)),
        ("decisions recorded", _counts(card.numbers.decisions)),
    ]


def _replay(card: RolloutCard) -> list[tuple[str, str]]:
    n = card.numbers
    return [
        ("grafted tokens", shown(n.departures.replayed, "share")),
        (
            "versions behind the newest of the tree",
            _spread(n.staleness) if n.staleness else "versions were not recorded",
        ),
        ("tokens of older weights", shown(n.departures.stale, "share")),
    ]


def _departures(card: RolloutCard) -> list[tuple[str, str]]:
    d = card.numbers.departures
    share = "share"
    return [
        ("forced: chosen by a method, a hint or a template", shown(d.forced, share)),
        ("tempered: sampled from another distribution than the policy's", shown(d.tempered, share)),
        ("… its mean log-ratio per token, sampling_logprob − logp", shown(d.tempered_mismatch)),
        ("distribution unknown: greedy, spliced or not recorded", shown(d.unknown_distribution, share)),
        ("foreign: written by another actor", shown(d.foreign, share)),
        ("replayed: grafted from earlier rollouts", shown(d.replayed, share)),
        ("stale: written under older weights", shown(d.stale, share)),
        ("masked: on trained paths, but not taught", shown(d.masked, share)),
        ("truncated: share of trained leaves", shown(d.truncated, share)),
        ("selected away: share of judged leaves that did not teach", shown(d.selected, share)),
    ]


def _table(title: str, rows: list[tuple[str, str]]) -> list[str]:
    lines = ["| | |", "|---|---|", *(f"| {_cell(name)} | {_cell(value)} |" for name, value in rows)]
    return [f"## {title}", "\n".join(lines)]


def _cell(text: str) -> str:
    """Text of a run shown as text: no cell is broken by it and no markup comes of it."""
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def _spread(s: Spread) -> str:
    if s.low == s.high:
        return shown(s.mean)
    return f"{shown(s.mean)} (from {shown(s.low)} to {shown(s.high)}, median {shown(s.middle)})"


def _counts(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda kv: -kv[1])
    return ", ".join(f"{name} {count:,}" for name, count in ordered) or "none"


def _knobs(card: RolloutCard, section: str, *names: str) -> str:
    found = (card.settings or {}).get(section)
    if not isinstance(found, dict):
        return "not recorded"
    knobs = cast("dict[str, Any]", found)
    return ", ".join(f"{name} {'none' if knobs.get(name) is None else knobs[name]}" for name in names)


def _pairs(found: Any) -> str:
    if not isinstance(found, dict):
        return "not recorded" if found is None else str(found)
    return ", ".join(f"{k} {v}" for k, v in cast("dict[str, Any]", found).items() if k != "is") or "none"


def _listed(found: Any) -> str:
    if found is None:
        return "not recorded"
    return "; ".join(_pairs(one) for one in found) or "none"
