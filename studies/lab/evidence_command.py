"""`rolltree evidence`: run, check, repeat or list what recipes claim."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console

from rolltree.cli.common import leading_names, parse
from rolltree.compare.report import ReportTable, duration
from rolltree.compare.report.terminal import table
from rolltree.compare.runner import Runner
from rolltree.compare.trace import LabError
from rolltree.compare.void import acted
from rolltree.console import Terminal
from rolltree.task.data.flags import DataFlags
from rolltree.tree.store.atomic import check_writable
from studies.lab.claim import Claim, checkout, claim_of, claims
from studies.lab.entry import EvidenceEntry, load_entries, load_entry, save_entry
from studies.lab.entry_family import confirmed, counted, dropped, handed_on, together
from studies.lab.evidence import accept, confirm, following, measure, problems, rejudged, verify
from studies.lab.evidence_pages import corrected_effect, effect, fresh_seeds
from studies.lab.kept import KEPT
from studies.lab.places import EVIDENCE


@dataclass(frozen=True)
class EvidenceConfig:
    """Run what recipes claim and store what was found."""

    names: tuple[str, ...] = ()
    """Recipes whose evidence is made; none with --all."""
    all: bool = False
    """Every recipe that claims something and whose evidence does not stand."""
    again: bool = False
    """Also where the stored evidence stands."""
    verify: bool = False
    """Repeat one seed of the stored evidence instead and compare."""
    confirm: bool = False
    """Ask again on seeds that nothing else used, where that was not done yet: what holds and what is left open with a
    one-sided p up to 0.2 (of training and of checks twelve at most each). Exits with 1 where what held does not do so
    again."""
    seed: int | None = None
    """The seed that --verify repeats; default: the first."""
    list: bool = False
    """Only say what is stored and whether it stands; exits with 1 where something does not. Verdicts and
    intervals are corrected over all entries of training, and over all others; a void entry is none."""
    rejudge: bool = False
    """Give stored runs the verdict of the rules as they are now; nothing is run."""
    agent: str = ""
    """Have the claims' tasks played by this program (docs/howto/agents.md); entries go to a --folder of their own."""
    folder: Path = Path("evidence")
    """Where NAME.json lies; entries of papers of the checkout lie in their folders."""
    cache: Path = Path("runs/cache")
    """Finished training runs, found again by their content."""
    kept: Path = KEPT
    """The runs that the repository keeps: claims in a regime share them with the tables."""
    json: bool = False
    """Print entries as JSON instead of a table."""


def main(config: EvidenceConfig, runner: Runner | None = None, console: Console | None = None) -> int:
    """0 = everything asked for was done, and stands or was reproduced; 1 = something was not."""
    out = console or Terminal()
    if not config.names:
        checkout()
    chosen = [claim_of(name) for name in config.names] or [c for c in claims() if c.complete or config.list]
    if config.agent:
        chosen = [_played(claim, config) for claim in chosen]
    if config.rejudge:
        return _rejudge(chosen, config, out)
    if config.list:
        return _list(chosen, config, out)
    if config.confirm:
        check_writable(config.folder, "--folder", folder=True)
        check_writable(config.cache, "--cache", folder=True)
        return _confirm(chosen, config, runner or _trainer(), out)
    if not config.names and not config.all:
        raise LabError(
            "name recipes, or use --all for every claim whose evidence does not stand, or --list to see them"
        )
    check_writable(config.folder, "--folder", folder=True)
    check_writable(config.cache, "--cache", folder=True)
    runner = runner or _trainer()
    if config.verify:
        return max((_verify(claim, config, runner, out) for claim in chosen), default=0)
    return _make(chosen, config, runner, out)


def _make(chosen: Sequence[Claim], config: EvidenceConfig, runner: Runner, out: Console) -> int:
    """Measure what does not stand; of all claims those are left out that wait for a calibration."""
    waiting = [] if config.names else [claim for claim in chosen if claim.uncalibrated]
    for claim in waiting:
        said = (f"{claim.name}: left out, because its regime {claim.regime!r} is not calibrated; run "
                f"`python -m studies.calibrate {claim.regime}` first")  # fmt: skip
        out.print(said, highlight=False, markup=False, soft_wrap=True)
    made: list[EvidenceEntry] = []
    for claim in (claim for claim in chosen if claim not in waiting):
        stored = load_entry(claim.name, config.folder)
        if stored is None or config.again or problems(claim, stored):
            stored = following(claim.card, measure(claim, runner, config.cache, kept=config.kept), stored)
            save_entry(stored, config.folder)
            if not config.json:
                out.print(f"{claim.name}: {stored.words}", highlight=False, markup=False, soft_wrap=True)
        made.append(stored)
    if config.json:
        print(json.dumps([asdict(e) for e in made]))
    else:
        out.print(table(entries_grid(made)))
    return 1 if waiting else 0


def _played(claim: Claim, config: EvidenceConfig) -> Claim:
    """The claim with its task played by an agent."""
    if not config.names or config.folder.resolve() == EVIDENCE or config.folder == Path("evidence"):
        raise LabError("--agent answers for the recipes that are named, in a folder of its own; give NAME and --folder")
    if claim.regime:
        raise LabError(f"the claim of {claim.name!r} is asked in a regime, whose task no agent plays; leave it out")
    if claim.question.check:
        raise LabError(f"the claim of {claim.name!r} is a check without a task, so no agent can play it; leave it out")
    return replace(
        claim, question=replace(claim.question, task=DataFlags(agent=config.agent).address(claim.question.task))
    )


def entries_grid(entries: Sequence[EvidenceEntry]) -> ReportTable:
    """Entries as a table: what was asked, what came out."""
    rows = [
        [
            e.name,
            e.kind,
            str(e.question["metric"]),
            str(e.question["baseline"]),
            effect(e),
            e.outcome,
            duration(e.seconds),
        ]
        for e in entries
    ]
    return ReportTable("Evidence", ["recipe", "kind", "metric", "against", "effect", "verdict", "took"], rows)


def _rejudge(chosen: Sequence[Claim], config: EvidenceConfig, out: Console) -> int:
    for claim in chosen:
        stored = load_entry(claim.name, config.folder)
        if stored is not None and (now := rejudged(claim, stored)) != stored:
            save_entry(now, config.folder)
            out.print(f"{claim.name}: {now.words}", highlight=False, markup=False, soft_wrap=True)
    return 0


def _confirm(chosen: Sequence[Claim], config: EvidenceConfig, runner: Runner, out: Console) -> int:
    """With names each must be one that can be asked; without, all that the screen hands on."""
    entries = load_entries(config.folder)
    waiting = handed_on(entries, together(entries))
    lost = 0
    for claim in chosen:
        stored = load_entry(claim.name, config.folder)
        if stored is None or (not config.names and (claim.name not in waiting or problems(claim, stored))):
            continue
        if stored.confirmation is None or config.again:
            stored = confirm(claim, stored, runner, config.cache, kept=config.kept)
            save_entry(stored, config.folder)
        told = stored.confirmation
        assert told is not None
        lost += stored.outcome == "holds" and told.outcome != "holds"
        out.print(f"{claim.name}, fresh seeds: {told.words}", highlight=False, markup=False, soft_wrap=True)
    return 1 if lost else 0


def _list(chosen: Sequence[Claim], config: EvidenceConfig, out: Console) -> int:
    rows: list[list[str]] = []
    wrong: list[str] = []
    stored = load_entries(config.folder)
    verdicts, again = together(stored), confirmed(stored)
    waiting = handed_on(stored, verdicts)
    for claim in chosen:
        entry = load_entry(claim.name, config.folder)
        found = problems(claim, entry) if claim.complete else [claim.missing]
        wrong += found
        rows.append(
            [
                claim.name,
                claim.kind if claim.complete else "unfinished",
                corrected_effect(entry, verdicts[claim.name]) if entry else "–",
                verdicts[claim.name].outcome if entry else "–",
                fresh_seeds(claim.name, waiting, again),
                acted(claim.card, entry.results, entry.kind).rpartition("` ")[2] if entry else "–",
                "no" if found else "yes",
            ]
        )
    mine = {name: verdicts[name] for name in (c.name for c in chosen) if name in verdicts}
    void = sum(v.outcome == "void" for v in mine.values())
    told = ", ".join(f"{n} × {outcome}" for outcome, n in counted(mine).items() if outcome != "void")
    if config.json:
        names = ("name", "kind", "difference", "verdict", "fresh_seeds", "acted", "stands")
        told_of = [dict(zip(names, row, strict=True)) for row in rows]
        print(json.dumps({"entries": told_of, "problems": wrong, "verdicts": counted(mine),
                          "dropped": sum(len(e.earlier) for e in stored)}))  # fmt: skip
    else:
        head = ["recipe", "kind", "difference", "verdict", "fresh seeds", "acted", "stands"]
        out.print(table(ReportTable("Evidence", head, rows)))
        held = [name for name, v in mine.items() if v.outcome == "holds"]
        fresh = [name for name in mine if name in again and again[name].outcome == "holds"]
        alone = [name for name in fresh if name not in held]
        beside = f", and on these alone {', '.join(alone)}" if alone else ""
        out.print(
            f"{len(mine) - void} verdicts: {told or 'none'}; {void} void entries are none. Of {len(held)} that hold "
            f"{len(fresh) - len(alone)} do so again on fresh seeds{beside}. {dropped(stored)}", highlight=False,
        )  # fmt: skip
        for line in wrong:
            out.print(line, highlight=False, markup=False, soft_wrap=True)
    return 1 if wrong else 0


def _verify(claim: Claim, config: EvidenceConfig, runner: Runner, out: Console) -> int:
    entry = load_entry(claim.name, config.folder)
    if entry is None:
        raise LabError(
            f"no evidence of {claim.name!r} is stored in {config.folder}; run `rolltree evidence {claim.name}`"
        )
    repeat = verify(claim, entry, runner, config.seed)
    if repeat.reproduced and entry.sources != claim.sources():
        save_entry(accept(claim, entry), config.folder)
    out.print(f"{claim.name}: {repeat.words}", highlight=False, markup=False, soft_wrap=True)
    return 0 if repeat.reproduced else 1


def _trainer() -> Runner:
    from rolltree.compare.train_runner import TrainRunner

    return TrainRunner()


ABOUT = """Run the experiment a recipe's card names and store effect, interval and verdict.

They go to evidence/NAME.json, or into the folder of the recipe's paper.

  rolltree evidence grpo            run one
  rolltree evidence --all           run what is missing or made by other code
  rolltree evidence grpo --verify   repeat a seed of what is stored
"""


def run(arguments: Sequence[str]) -> int:
    """Parse and run, as `rolltree evidence` asks."""
    names, rest = leading_names(arguments)
    given = ["--names", *names] if names else []
    return main(parse(EvidenceConfig, [*given, *rest], "evidence", ABOUT))
