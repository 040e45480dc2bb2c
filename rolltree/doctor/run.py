"""What a detector sees: the metrics of a run and its saved rollouts as columns, whoever wrote them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from rolltree.doctor.finding import Place
from rolltree.doctor.series import NotChecked, Series, Spell, series
from rolltree.errors import RolltreeError
from rolltree.metrics.log import MetricsError, read_metrics
from rolltree.metrics.registry import value_in
from rolltree.metrics.rollouts import Numbers, Rollouts
from rolltree.metrics.step import Family, family_of
from rolltree.policy.tokenizer_file import model_tokenizer, saved_tokenizers
from rolltree.rollout.underway import KIND
from rolltree.tree.node import Array
from rolltree.tree.store import jsonl
from rolltree.tree.store.archive import open_forest
from rolltree.tree.store.parquet import parts
from rolltree.tree.store.values import read_json
from rolltree.tree.table import Bools, Ints, table

MOST_PLACES = 12
"""Nodes a finding names; the first of them are enough to look at."""
LACKING = {
    "policy/entropy": "no entropy was recorded; train with --log-entropy, or let the engine report entropy",
    "policy/mismatch": "only the log of a training run tells the engine's log-probs from the trainer's",
    "policy/ess": "no node has both logp and sampling_logprob",
    "policy/prefix": "no node has credit (gain and loss), or no token is shared by several rollouts",
    "policy/zero_advantage": "only the log of a training run tells which tokens got no advantage",
    "rollout/duplicates": "no rollout is wrong, or the actions are not tokens",
    "rollout/effective_branches": "no tree has leaves enough to speak of branches",
    "rollout/length_bias": "no prompt has right and wrong answers",
    "rollout/length_tail": "no rollout came to its end",
    "rollout/tool": "no environment answered",
    "reward/shaped": "no leaf was judged",
    "reward/split_transcripts": "no transcript stands twice in a tree, so none can be compared",
    "reward/split_answers": "no final answer stands twice in a tree, so none can be compared",
    "reward/vote": "no label comes from a vote, or the truth is not known beside it",
    "reward/": "no prompt has two judged leaves",
    "staleness/replayed": "no branch was replayed, or no node has weight versions",
    "staleness/": "no node has weight versions",
    "time/idle_load": "no events with clock times were kept",
}
"""What it means that a metric (or one whose name begins so) is not there."""


Decode = Callable[[Sequence[Array]], list[str]]


class DoctorError(RolltreeError, ValueError):
    """Something that cannot be examined, or a knob that does not exist; names it and the way out."""


@dataclass(frozen=True, eq=False)
class CheckedRun:
    """One run. Numbers come from the log; what it lacks is computed from the saved forests."""

    name: str
    lines: Sequence[Mapping[str, Any]] = ()
    """Lines of metrics.jsonl."""
    forests: Mapping[int, Callable[[], Rollouts]] = field(default_factory=dict[int, Callable[[], Rollouts]])
    """Opens the forest of a step; 0 stands for a forest outside a run."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """config.json, where there is one."""
    decode: Decode | None = None
    """Turns runs of tokens into their texts; None where no tokenizer is known."""

    def series(self, name: str) -> Series:
        """A number over the training steps. Raises `NotChecked` where neither log nor forests have it."""
        found = series(name, ((line["step"], value_in(line, name)) for line in self.lines if line["kind"] == "train"))
        if not len(found):
            found = series(name, ((step, self._numbers(step, name).get(name)) for step in sorted(self.forests)))
        if not len(found):
            raise NotChecked(self._lacking(name))
        return found

    def evals(self, name: str) -> Series:
        """A number over the evaluations on held-out items."""
        found = series(name, ((line["step"], line.get(name)) for line in self.lines if line["kind"] == "eval"))
        if not len(found):
            raise NotChecked(f"no evaluation measured {name}; train with --eval-every above 0")
        return found

    def causes(self) -> list[tuple[int, str]]:
        """What broke, in words, by step: from the log, else from the events of saved forests."""
        told = [(int(line["step"]), str(line["why"])) for line in self.lines if line["kind"] == KIND]
        if told or self.lines:
            return told
        found = ((step, self.rollouts(step).source.events()) for step in sorted(self.forests))
        return [(step, why) for step, events in found for kind, why in zip(events.kind, events.why, strict=True)
                if kind == "fail" and why]  # fmt: skip

    def names(self, prefix: str) -> list[str]:
        """Names of all numbers with a prefix, in the log or the forests."""
        logged = {k for line in self.lines for k in line if k.startswith(prefix)}
        for step in () if logged else self.forests:
            logged |= {k for k in self._numbers(step, f"{prefix}any") if k.startswith(prefix)}
        return sorted(logged)

    def rollouts(self, step: int) -> Rollouts:
        """The forest of a step."""
        if step not in self._open:
            self._open[step] = self.forests[step]()
        return self._open[step]

    def show(self, spell: Spell, select: Callable[[Rollouts], Ints]) -> tuple[Place, ...]:
        """Places of the rows that a function selects from the newest saved forest of a spell that has some."""
        for step in sorted(self.forests, reverse=True):
            if spell.covers(step):
                rollouts = self.rollouts(step)
                rows = select(rollouts)[:MOST_PLACES]
                if len(rows):
                    return places(step, rollouts, rows)
        return ()

    @cached_property
    def _open(self) -> dict[int, Rollouts]:
        return {}

    @cached_property
    def _measured(self) -> dict[tuple[int, Family], Numbers]:
        return {}

    def _numbers(self, step: int, name: str) -> Numbers:
        family = family_of(name)
        if family is None:
            return {}
        if (step, family) not in self._measured:
            self._measured[step, family] = family(self.rollouts(step))
        return self._measured[step, family]

    def _lacking(self, name: str) -> str:
        if not self.lines and not self.forests:
            return "the run has finished no step and saved no forest"
        return next((why for begin, why in LACKING.items() if name.startswith(begin)), f"{self.name} has no {name}")


def open_run(path: Path | str, model: str = "") -> CheckedRun:
    """A run folder, a folder of forests, or a file of nodes in the interchange format.

    Texts are read by the tokenizer of `model`, the run's own unless given.
    """
    return replace(_opened(Path(path)), decode=_decoder(Path(path), model))


def _opened(path: Path) -> CheckedRun:
    if path.is_file():
        forest = list(jsonl.read(path))
        if not forest:
            raise DoctorError(f"{path} holds no rollouts, so there is nothing to examine; give a file with nodes")
        return CheckedRun(path.name, forests={0: lambda: Rollouts(table(forest))})
    if (path / "metrics.jsonl").is_file():
        run = CheckedRun(path.name, _lines(path), _saved(path / "forests"), settings_of(path))
        if not run.lines and not run.forests:
            raise DoctorError(f"{path} has finished no step and saved no forest, so there is nothing to examine yet")
        return run
    found = _saved(path)
    if found:
        return CheckedRun(path.name, forests=found)
    if (path / "nodes.jsonl").is_file():
        return _opened(path / "nodes.jsonl")
    raise DoctorError(f"there is no run at {path}; give a run folder, a folder of forests or a file of nodes")


def _decoder(path: Path, model: str) -> Decode | None:
    name = model or str(settings_of(path).get("model", ""))
    found = [] if model else saved_tokenizers(path)
    file = next((f for f in (*found, *([model_tokenizer(name)] if name else [])) if f.is_file()), None)
    if file is None:
        if model:
            raise DoctorError(f"--model {model} has no tokenizer.json here; give a model's name or folder")
        return None

    def decode(runs: Sequence[Array]) -> list[str]:
        from tokenizers import Tokenizer  # loaded when texts are read, which most examinations never do

        tokenizer: Any = Tokenizer.from_file(str(file))
        return list(tokenizer.decode_batch([run.tolist() for run in runs], skip_special_tokens=False))

    return decode


def places(step: int, rollouts: Rollouts, rows: Ints) -> tuple[Place, ...]:
    """Rows as places that a viewer can open."""
    ids = rollouts.source.ids
    return tuple(Place(step, ids[int(rollouts.tree[row])], int(rollouts.id[row])) for row in rows.tolist())


def roots(rollouts: Rollouts, trees: Bools) -> Ints:
    """Rows of the roots of some trees."""
    return np.flatnonzero((rollouts.parent < 0) & trees[rollouts.tree])


def leaves(rollouts: Rollouts, some: Bools) -> Ints:
    """Rows of some leaves."""
    return rollouts.leaf[some]


def _saved(folder: Path) -> dict[int, Callable[[], Rollouts]]:
    found = [(step or 0, path) for step, path in parts(folder) if (path / "nodes.parquet").is_file()]
    return {step: _opener(path) for step, path in found}


def _opener(path: Path) -> Callable[[], Rollouts]:
    return lambda: Rollouts(open_forest(path))


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        lines = read_metrics(path / "metrics.jsonl")
    except MetricsError as error:
        raise DoctorError(str(error)) from None
    except OSError as error:
        raise DoctorError(f"{path / 'metrics.jsonl'} cannot be read ({error}); restore it or train again") from None
    # A resumed run may have written a step twice; the last line counts.
    return list({(line["kind"], line["step"]): line for line in lines}.values())


def settings_of(path: Path) -> dict[str, Any]:
    """A run folder's config.json; empty where it has none."""
    return _settings(path)


def _settings(path: Path) -> dict[str, Any]:
    try:
        told: Any = read_json((path / "config.json").read_text(encoding="utf-8"))
    except (ValueError, OSError):
        return {}
    return cast("dict[str, Any]", told) if isinstance(told, dict) else {}
