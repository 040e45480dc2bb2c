"""`rolltree card RUN`: how a run's rollouts were made and how they differ from plain sampling, to attach to a paper.

The survey of rollout strategies (Generate, Filter, Control, Replay) finds that most papers leave out what decides
their result: topology, guidance, group sizes, budgets, filters, replay, stop rules, and how far the distribution that
was trained on is from independent samples of the policy. A card states these from what a run recorded, never from
what it was meant to do; a forest of another program gets the part that its nodes can answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from rich.console import Console
from rich.markdown import Markdown

from rolltree.compare.report.page import duration, shown
from rolltree.compare.trace import LabError, write_json
from rolltree.console import Terminal
from rolltree.errors import RolltreeError
from rolltree.metrics.log import read_metrics
from rolltree.recipe.compose import compose
from rolltree.recipe.recipe import Card
from rolltree.recipe.registry import RECIPES, recipes
from rolltree.recipe.stored import Given, StoredNames
from rolltree.tree import Forest, Node, Tree
from rolltree.tree.store import jsonl, parquet
from rolltree.tree.store.atomic import check_writable
from rolltree.tree.store.values import read_json
from rolltree.tree.views import effective_branches, leaf_counts

# What forests say about how their rollouts were made: the numbers of a rollout card.
#
# Everything is counted over nodes and leaves as they stand in the trees, so cards can be made for forests written by
# any program. Shares are of policy tokens on the paths of leaves that were trained on, unless named otherwise.


@dataclass(frozen=True)
class Spread:
    """A handful of numbers about many."""

    mean: float
    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class Topology:
    """The shape of the trees."""

    kind: str
    """linear, group, tree or multi-turn (tree, multi-turn)."""
    trees: int
    leaves: int
    group: Spread
    """Leaves per prompt."""
    depth: Spread
    """Nodes on a path, the prompt not counted."""
    forks: Mapping[str, int]
    """Nodes with siblings below the root, by how they were born."""
    sharing: float
    """Policy tokens on all paths per policy token decoded: 1 = nothing shared."""
    branches: float
    """Effective branches at the root, on average."""
    turns: Spread
    """Environment answers per path."""


@dataclass(frozen=True)
class Departures:
    """How the trained-on distribution differs from plain sampling of the policy."""

    forced: float
    """Tokens a method chose instead of the policy, also hints and templates on trained paths."""
    tempered: float
    """Sampled tokens whose sampling distribution was not the policy's own (temperature, truncation, hooks)."""
    tempered_mismatch: float
    """Mean of sampling_logprob − logp over those with both: an estimate of the divergence per token."""
    unknown_distribution: float
    """Tokens with no behaviour log-prob: greedy, spliced, or not recorded."""
    foreign: float
    """Trained tokens written by another actor than the policy."""
    replayed: float
    """Tokens grafted from earlier rollouts."""
    stale: float
    """Tokens written under older weights than the newest of their tree."""
    truncated: float
    """Trained leaves cut at a length limit or by a budget."""
    selected: float
    """Finished leaves with an outcome that did not get to teach."""
    masked: float
    """Policy tokens on trained paths that were masked out."""


@dataclass(frozen=True)
class CardSelection:
    """What selection did to the outcome and the length: all judged leaves against those trained on."""

    reward_all: float
    reward_trained: float
    length_all: float
    length_trained: float


@dataclass(frozen=True)
class Numbers:
    """All numbers of a card."""

    topology: Topology
    tokens: Mapping[str, int]
    """Tokens by role, each prefix once."""
    finishes: Mapping[str, int]
    fates: Mapping[str, int]
    """Leaves by what became of them."""
    decisions: Mapping[str, int]
    """Events by kind: forks, prunes, stops and their like."""
    staleness: Spread | None
    """Versions a trained token is behind the newest of its tree; None where versions were not recorded."""
    departures: Departures
    selection: CardSelection


def numbers(trees: Iterable[Tree]) -> Numbers:
    """Count everything a card states."""
    forest = [t for t in trees if len(t) > 1]
    leaves = [(tree, leaf) for tree in forest for leaf in tree.leaves()]
    trained = [(t, n) for t, n in leaves if _taught(n)]
    tokens: Counter[str] = Counter()
    decisions: Counter[str] = Counter()
    for tree in forest:
        for node in tree:
            tokens[node.role] += len(node)
        decisions.update(e.kind for e in tree.events)
    behind = np.concatenate([_staleness(tree) for tree in forest]) if forest else np.zeros(0)
    return Numbers(
        topology=_topology(forest, leaves),
        tokens=dict(tokens),
        finishes=dict(Counter(n.finish or n.status for _, n in leaves)),
        fates=dict(Counter(_fate(n) for _, n in leaves)),
        decisions=dict(decisions),
        staleness=_spread(behind) if len(behind) else None,
        departures=_departures(trained, leaves),
        selection=_selection(leaves, trained),
    )


def _topology(forest: Sequence[Tree], leaves: Sequence[tuple[Tree, Node]]) -> Topology:
    groups = [len(t.leaves()) for t in forest]
    own = on_paths = 0
    forks: Counter[str] = Counter()
    for tree in forest:
        counts = leaf_counts(tree)
        for node in tree:
            if node.role == "policy":
                own += len(node)
                on_paths += len(node) * counts[node.id]
            if node.parent is not None and len(node.children) > 1:
                # The first child goes on; what was set beside it made the fork.
                forks[tree[node.children[-1]].birth] += 1
    turns = [sum(n.role == "env" for n in t.path(leaf)) for t, leaf in leaves]
    shape = "tree" if forks else "group" if max(groups, default=1) > 1 else "linear"
    return Topology(
        kind=f"{shape}, multi-turn" if any(turns) else shape,
        trees=len(forest),
        leaves=len(leaves),
        group=_spread(groups),
        depth=_spread([len(t.path(leaf)) - 1 for t, leaf in leaves]),
        forks=dict(forks),
        sharing=on_paths / own if own else 1.0,
        branches=float(np.mean([effective_branches(t) for t in forest])) if forest else 0.0,
        turns=_spread(turns),
    )


def _departures(trained: Sequence[tuple[Tree, Node]], leaves: Sequence[tuple[Tree, Node]]) -> Departures:
    count: Counter[str] = Counter()
    gap = 0.0
    seen: set[tuple[str, int]] = set()
    for tree, leaf in trained:
        for node in tree.path(leaf):
            if (tree.id, node.id) in seen or node.parent is None:
                continue
            seen.add((tree.id, node.id))
            gap += _count_node(tree, node, count)
    policy, chosen = max(count["policy"], 1), count["policy"] + count["guided"]
    judged = [n for _, n in leaves if n.status == "done" and "reward" in n.scores]
    return Departures(
        forced=(count["forced"] + count["guided"]) / max(chosen, 1),
        tempered=count["tempered"] / policy,
        tempered_mismatch=gap / max(count["both"], 1),
        unknown_distribution=count["unknown"] / policy,
        foreign=count["foreign"] / policy,
        replayed=count["replayed"] / policy,
        stale=count["stale"] / policy,
        truncated=sum(n.finish in ("length", "budget", "depth") for _, n in trained) / max(len(trained), 1),
        selected=sum(not _taught(n) for n in judged) / max(len(judged), 1),
        masked=count["masked"] / policy,
    )


def _count_node(tree: Tree, node: Node, count: Counter[str]) -> float:
    """Add a node of a trained path to the counts; returns its sum of sampling_logprob − logp."""
    size = len(node)
    if node.role in ("hint", "splice", "template"):
        count["guided"] += size
    if not node.trainable:
        return 0.0
    count["policy"] += size
    count["foreign"] += size * (node.actor != "policy")
    count["replayed"] += size * any(n.birth == "graft" for n in tree.path(node))
    count["masked"] += 0 if node.keep is None else int((~node.keep).sum())
    if node.version is not None:
        count["stale"] += int((node.version < _newest(tree)).sum())
    if node.forced:
        count["forced"] += size
        return 0.0
    if node.sampling_logprob is None:
        count["unknown"] += size
        return 0.0
    known = np.isfinite(node.sampling_logprob)
    count["unknown"] += int((~known).sum())
    if node.logp is None:
        return 0.0
    difference = (node.sampling_logprob - node.logp)[known].astype(np.float64)
    count["both"] += len(difference)
    count["tempered"] += int((np.abs(difference) > 1e-3).sum())
    return float(difference.sum())


def _selection(leaves: Sequence[tuple[Tree, Node]], trained: Sequence[tuple[Tree, Node]]) -> CardSelection:
    def reward(pairs: Sequence[tuple[Tree, Node]]) -> float:
        found = [n.scores.get("outcome", n.scores["reward"]) for _, n in pairs if "reward" in n.scores]
        return float(np.mean(found)) if found else float("nan")

    def length(pairs: Sequence[tuple[Tree, Node]]) -> float:
        return (
            float(np.mean([sum(len(m) for m in t.path(n) if m.trainable) for t, n in pairs])) if pairs else float("nan")
        )

    judged = [(t, n) for t, n in leaves if n.status == "done"]
    return CardSelection(reward(judged), reward(trained), length(judged), length(trained))


def _staleness(tree: Tree) -> np.ndarray:
    newest = _newest(tree)
    found = [newest - n.version for n in tree if n.trainable and n.version is not None]
    return np.concatenate(found) if found else np.zeros(0)


def _newest(tree: Tree) -> int:
    return max((int(n.version.max()) for n in tree if n.version is not None and len(n.version)), default=0)


def _taught(leaf: Node) -> bool:
    """Trained on; in forests of programs that record no fates, every finished leaf with an outcome."""
    return leaf.usage == "trained" or (not leaf.usage and leaf.status == "done" and "reward" in leaf.scores)


def _fate(leaf: Node) -> str:
    return leaf.usage or ("running" if leaf.status in ("open", "paused") else f"{leaf.status}, usage not recorded")


def _spread(values: Sequence[float] | np.ndarray) -> Spread:
    x = np.asarray(values, np.float64)
    if not len(x):
        return Spread(0.0, 0.0, 0.0, 0.0)
    return Spread(float(x.mean()), float(x.min()), float(np.median(x)), float(x.max()))


@dataclass(frozen=True)
class CardConfig:
    """State how a run's rollouts were made."""

    run: Path
    """A run folder, a folder of forests, or a file of nodes in the interchange format."""
    recipe: str = ""
    """The run's recipe, where that is one of your own: FILE.py:NAME. Stored files name registered parts only."""
    out: Path | None = None
    """Folder for card.json and card.md; default: the run folder, or beside the file, whose name then goes before."""
    json: bool = False
    """Print the JSON instead of the page."""


@dataclass(frozen=True)
class RolloutCard:
    """The card: what was set, where it is known, and what was counted."""

    source: str
    steps: tuple[int, ...]
    """Steps whose forests were counted; empty for a single forest."""
    numbers: Numbers
    recipe: Card | None = None
    settings: Mapping[str, Any] | None = None
    """The run's config.json; None for forests of other programs."""
    parts: Mapping[str, str] | None = None
    """Strategy, filters and shapers as the recipe builds them; None where this version does not have the recipe."""
    totals: Mapping[str, float] | None = None
    """Sums over all steps of metrics.jsonl: tokens, leaves, time."""


def main(config: CardConfig, console: Console | None = None) -> int:
    """Write card.json and card.md, and print one of them."""
    from rolltree.compare.card import markdown

    if config.out is not None:
        check_writable(config.out, folder=True)
    made = card(config.run, Given(recipe=config.recipe))
    folder = config.out or (config.run if config.run.is_dir() else config.run.parent)
    # Several files may lie in one folder, and each has its card.
    name = "card" if config.out or config.run.is_dir() else f"{config.run.stem}.card"
    write_json(folder / f"{name}.json", as_json(made))
    text = markdown(made)
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    if config.json:
        print(json.dumps(as_json(made)))
    else:
        (console or Terminal()).print(Markdown(text))
    return 0


def card(path: Path, given: Given | None = None) -> RolloutCard:
    """The card of a run folder, a folder of forests, or an interchange file; `given` stands in for what it names."""
    if not path.exists():
        raise LabError(f"there is no run at {path}; give a run folder, a folder of forests or a file of nodes")
    try:
        if path.is_file():
            return RolloutCard(path.name, (), numbers(jsonl.read(path)))
        if not (path / "config.json").is_file():
            return _of_forests(path, path.name)
        return _of_run(path, given or Given())
    except RolltreeError:
        raise
    except (ValueError, OSError) as error:
        raise LabError(f"cannot make a card of {path}: {error}") from error


def as_json(made: RolloutCard) -> dict[str, Any]:
    """The card as plain values; what cannot be known is null."""
    return cast("dict[str, Any]", json.loads(json.dumps(asdict(made), default=str), parse_constant=lambda _: None))


def _of_run(path: Path, given: Given) -> RolloutCard:
    settings: Any = read_json((path / "config.json").read_text(encoding="utf-8"))
    if not isinstance(settings, dict) or not isinstance(settings.get("parts", {}), dict):
        raise LabError(f"{path / 'config.json'} holds no settings of a run; restore it")
    settings = cast("dict[str, Any]", settings)
    counted = _of_forests(path / "forests", path.name)
    name = str(settings.get("parts", {}).get("name", ""))
    known = RECIPES.find(given.recipe).card if given.recipe else _card_of(name)
    return RolloutCard(
        path.name, counted.steps, counted.numbers, known, settings,
        _parts(StoredNames(str(path), path, given), name, settings.get("recipe")) if known else None,
        _totals(read_metrics(path / "metrics.jsonl")),
    )  # fmt: skip


def _card_of(name: str) -> Card | None:
    known = recipes().get(name)
    return known.card if known else None


def _parts(names: StoredNames, name: str, stored: Any) -> dict[str, str] | None:
    """The parts of the recipe with the knobs the run had; None when this version's recipe has other knobs, or when they
    name code."""
    try:
        made = compose(names.recipe(name, cast("dict[str, Any]", stored) if isinstance(stored, dict) else {}))
    except RolltreeError:
        return None
    whole = {"strategy": (made.strategy,), "filters": made.filters, "shapers": made.shapers}
    return {part: ", ".join(map(repr, things)) or "none" for part, things in whole.items()}


def _of_forests(path: Path, source: str) -> RolloutCard:
    found = parquet.parts(path) if path.is_dir() else []
    if not found:
        raise LabError(f"{path} holds no forests; train with forests_every above 0 to keep some")
    trees: list[Tree] = []
    for step, folder in found:
        forest: Forest = parquet.load(folder)
        for tree in forest:
            tree.id = tree.id if step is None else f"step {step}: {tree.id}"
            trees.append(tree)
    return RolloutCard(source, tuple(step for step, _ in found if step is not None), numbers(trees))


SUMMED = ("budget/decoded", "budget/prefilled", "budget/leaves", "budget/env_steps", "budget/judge_calls",
          "budget/trained", "rollout/submitted", "rollout/trained", "rollout/kept", "rollout/running",
          "rollout/dropped", "rollout/waiting")  # fmt: skip
"""Metrics of which a card says the sum over steps."""


def _totals(lines: list[dict[str, Any]]) -> dict[str, float]:
    steps = [line for line in lines if line["kind"] == "train"]
    names = {k for line in steps for k in line if k in SUMMED or k.startswith("rollout/dropped/")}
    out = {name: float(sum(line.get(name) or 0.0 for line in steps)) for name in sorted(names)}
    last = steps[-1] if steps else {}
    return out | {"steps": float(len(steps)), "seconds": float(last.get("time/total", 0.0))}


# A rollout card as a page of markdown.


def markdown(card: RolloutCard) -> str:
    """The page: one table a topic, a sentence where a number needs one."""
    parts = [
        f"# Rollout card: {_cell(card.source)}",
        _lead(card),
        *_table("Generate", _generate(card)),
        *_table("Filter", _filter(card)),
        *_table("Control", _control(card)),
        *_table("Replay and weights", _replay(card)),
        *_table("How the trained-on distribution differs from plain sampling", _departures_text(card)),
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
        ("leaves per prompt", _spread_text(t.group)),
        ("nodes on a path", _spread_text(t.depth)),
        ("environment answers per path", _spread_text(t.turns)),
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
            _spread_text(n.staleness) if n.staleness else "versions were not recorded",
        ),
        ("tokens of older weights", shown(n.departures.stale, "share")),
    ]


def _departures_text(card: RolloutCard) -> list[tuple[str, str]]:
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


def _spread_text(s: Spread) -> str:
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
