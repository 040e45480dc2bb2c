"""What goes wrong with agents that are programs of their own: told by the forests they leave."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.fix import agent, option, serving
from rolltree.doctor.run import MOST_PLACES, CheckedRun, places
from rolltree.doctor.series import NotChecked
from rolltree.metrics.rollouts import Rollouts
from rolltree.tree.table import Bools, Ints

THROWN = ("dropped: asked again", "dropped: another answer was taken", "dropped: nobody waited for it")
ENDLESS = ("neither asked nor ended", "ran longer than", "nothing was heard for")
DRIFT = "the template writes earlier turns in another way"


@detector(
    "thrown_answers",
    "Agents ask again, take another answer or hang up: much of what is sampled for them is never trained.",
    reads=("forests",),
    fixes=(serving("call_seconds", "more time before a call is stopped"),),
    knobs={"most": "share of the sampled tokens that nothing was built on", "worse": "the same, for critical"},
    live=False,
)  # fmt: skip
def thrown_answers(run: CheckedRun, *, most: float = 0.2, worse: float = 0.5) -> Iterator[Symptom]:
    """Retries of a client are paid like answers; their reason stands on the leaf."""
    step, r = _newest(run)
    thrown = np.logical_or.reduce([r.starts("usage", reason) for reason in THROWN]) & r.trainable
    share = _share(r.length[thrown].sum(), r.length[r.trainable].sum())
    if share > most:
        yield Symptom(
            step, "critical" if share > worse else "warning",
            f"{share:.0%} of the sampled tokens are answers that agents threw away (limit {most:.0%})",
            {"share": share, "most": most, "worse": worse}, places(step, r, np.flatnonzero(thrown)[:MOST_PLACES]),
        )  # fmt: skip


@detector(
    "endless_agents",
    "Agents neither ask nor end, and are stopped by their time limits.",
    reads=("forests",),
    fixes=(agent("total_seconds", "ends those that go on and on earlier"),),
    knobs={"most": "share of the rollouts that ended so", "worse": "the same, for critical"},
    live=False,
)  # fmt: skip
def endless_agents(run: CheckedRun, *, most: float = 0.05, worse: float = 0.3) -> Iterator[Symptom]:
    """Each holds its place in the batch for as long as it may be silent."""
    step, r = _newest(run)
    stopped = _with_event(r, "fail", ENDLESS)
    share = _share(stopped.sum(), len(r.leaf))
    if share > most:
        yield Symptom(
            step, "critical" if share > worse else "warning",
            f"{share:.0%} of the rollouts ended because their agent neither asked nor ended (limit {most:.0%})",
            {"share": share, "most": most, "worse": worse}, places(step, r, np.flatnonzero(stopped)[:MOST_PLACES]),
        )  # fmt: skip


@detector(
    "template_drift",
    "The chat template writes earlier turns in another way than they were sampled, so calls leave their contexts.",
    reads=("forests",),
    fixes=(option("chat", "another template, or none"),),
    knobs={"most": "share of the calls", "worse": "the same, for critical"},
    live=False,
)  # fmt: skip
def template_drift(run: CheckedRun, *, most: float = 0.1, worse: float = 0.5) -> Iterator[Symptom]:
    """Templates that drop thoughts do so at each turn: every call then begins a context, and nothing is shared."""
    step, r = _newest(run)
    changed = _with_event(r, "note", (DRIFT,))
    calls = sum(kind == "act" for kind in r.source.events().kind)
    share = _share(changed.sum(), calls)
    if share > most:
        yield Symptom(
            step, "critical" if share > worse else "warning",
            f"in {share:.0%} of the calls the template rewrote earlier turns (limit {most:.0%})",
            {"share": share, "most": most, "worse": worse}, places(step, r, np.flatnonzero(changed)[:MOST_PLACES]),
        )  # fmt: skip


def _newest(run: CheckedRun) -> tuple[int, Rollouts]:
    if not run.forests:
        raise NotChecked("no forests were saved; train with --forests-every above 0")
    return max(run.forests), run.rollouts(max(run.forests))


def _with_event(r: Rollouts, kind: str, said: tuple[str, ...]) -> Bools:
    """Nodes with an event of a kind that says one of these."""
    events = r.source.events()
    found = {
        (tree, node) for tree, node, of, why in zip(
            events.tree.tolist(), events.node.tolist(), events.kind, events.why, strict=True
        ) if of == kind and any(words in why for words in said)
    }  # fmt: skip
    return np.fromiter(((t, n) in found for t, n in zip(r.tree.tolist(), r.id.tolist(), strict=True)), np.bool_)


def _share(some: Ints | int, all_of: Ints | int) -> float:
    return float(some) / float(all_of) if all_of else 0.0
