"""Verifiers, environments and engines that crash."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Fix, Symptom, agent, option, serving, work
from rolltree.doctor.levels import WINDOW
from rolltree.doctor.run import MOST_PLACES, CheckedRun, leaves, places
from rolltree.doctor.series import NotChecked
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.usage import BREAKERS
from rolltree.rollout.underway import KIND
from rolltree.task.protocol import EXPECTED
from rolltree.tree.node import Array
from rolltree.tree.table import Bools, Ints
from rolltree.visible import shortened

# What goes wrong with agents that are programs of their own: told by the forests they leave.

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


# Answers that stand where the policy only has to copy them: in the prompt, or in whatever a tool replies.


@detector(
    "leaked_answers",
    "The answer stands in the prompt, or a tool gives it away whatever it is asked: it is copied, not found.",
    reads=("forests",),
    fixes=(work("take the answer out of the prompts of your data"),
           work("give the task a tool that does not know the answer")),
    knobs={"most": "share of the prompts with their own answer in them, beyond those with another prompt's answer",
           "worse": "the same, for critical",
           "replies": "share of a prompt's distinct first calls that are replied to with the answer",
           "least": "characters of an answer; shorter ones stand in many texts by chance",
           "trees": "trees looked at, evenly spaced over the newest saved step"},
    live=False,
)  # fmt: skip
def leaked_answers(
    run: CheckedRun, *, most: float = 0.2, worse: float = 0.6, replies: float = 0.9, least: int = 3, trees: int = 64
) -> Iterator[Symptom]:
    """What a tree expects is looked for as a whole word; a tool may give it to whoever asks the right thing.

    Only where right rollouts answer with what is expected: a target to be reached is no answer.
    """
    if not run.forests:
        raise NotChecked("no forests were saved; train with --forests-every above 0")
    if run.decode is None:
        raise NotChecked("no tokenizer of these rollouts is here; name its model with --model")
    step = max(run.forests)
    r = run.rollouts(step)
    asked = [str(notes.get(EXPECTED, "")).strip() for notes in r.source.tree_notes()]
    known = np.array([i for i, answer in enumerate(asked) if len(answer) >= max(1, least)], np.int64)
    if not len(known):
        raise NotChecked(f"no tree says that it expects an answer of at least {least:g} characters")
    if not _are_answers(r, asked):
        raise NotChecked("no right rollout answers with what its tree expects, so that may be no answer")
    known = known[np.unique(np.linspace(0, len(known) - 1, min(int(trees), len(known))).astype(int))]
    at = np.flatnonzero(r.parent < 0)[known]
    prompts = _texts(r, at, run.decode)
    own = np.array([_says(text, asked[i]) for text, i in zip(prompts, known.tolist(), strict=True)])
    # What another prompt expects stands in this one by chance alone.
    turned = pairwise([*known.tolist(), int(known[0])])
    others = [_says(text, asked[j]) for text, (i, j) in zip(prompts, turned, strict=True) if asked[i] != asked[j]]
    share = float(own.mean()) - (float(np.mean(others)) if others else 0.0)
    if share > most:
        yield Symptom(
            step, "critical" if share > worse else "warning",
            f"{own.mean():.0%} of the prompts hold the answer that they ask for, {share:.0%} more than chance (limit "
            f"{most:.0%})",
            {"prompts": float(own.mean()), "beyond_chance": share, "most": most, "worse": worse},
            places(step, r, at[own][:MOST_PLACES]),
        )  # fmt: skip
    told, rows = _told(r, asked, known, run.decode)
    if told > replies:
        yield Symptom(
            step, "warning",
            f"{told:.0%} of a prompt's distinct first calls are replied to with the answer, whatever they ask (limit "
            f"{replies:.0%})",
            {"calls": told, "replies": replies}, places(step, r, np.array(rows[:MOST_PLACES], np.int64)),
        )  # fmt: skip


def _are_answers(r: Rollouts, asked: Sequence[str]) -> bool:
    rows = r.leaf[r.solved]
    said = [(str(n["answer"]).strip(), int(t)) for n, t in zip(r.source.notes(rows), r.tree[rows], strict=True)
            if n.get("answer") is not None]  # fmt: skip
    return bool(said) and sum(answer == asked[tree] for answer, tree in said) >= len(said) / 2


def _told(
    r: Rollouts, asked: Sequence[str], known: Array, decode: Callable[[Sequence[Array]], list[str]]
) -> tuple[float, list[int]]:
    """Of the distinct first calls of each tree with two or more, the share whose reply holds the answer; and these."""
    env = r.is_("role", "env")
    first = np.flatnonzero(env & (r.down(env.astype(np.int64)) == 1) & np.isin(r.tree, known) & (r.length > 0))
    shares: list[float] = []
    rows: list[int] = []
    texts, calls = _texts(r, first, decode), _texts(r, r.parent[first], decode)
    for tree in known.tolist():
        mine = [i for i, row in enumerate(first.tolist()) if int(r.tree[row]) == tree]
        distinct = {calls[i]: i for i in mine}
        if len(distinct) < 2:
            continue
        answer = asked[int(tree)]
        given = [i for call, i in distinct.items() if _says(texts[i], answer) and not _says(call, answer)]
        shares.append(len(given) / len(distinct))
        rows += [int(first[i]) for i in given]
    return (float(np.mean(shares)) if shares else 0.0), rows


def _texts(r: Rollouts, rows: Array, decode: Callable[[Sequence[Array]], list[str]]) -> list[str]:
    actions, at = r.ragged("actions")
    return decode([actions[at[row] : at[row + 1]] for row in rows.tolist()])


def _says(text: str, answer: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text, re.IGNORECASE) is not None


MEND = work("mend what the message names, then go on with --resume")
_PLACE = re.compile(r"\((?P<file>[^()\s]+\.py)(?: line |:)(?P<line>\d+)(?: in [^()]*)?\)")
"""File and line in what is said of a failure, as a reward and as a verifier say them."""


@detector(
    "crashes",
    "Rollouts are lost because the verifier, the environment or the engine broke.",
    reads=("rollout/failed_share", "eval/failed", *(f"rollout/failed/{name}" for name in BREAKERS)),
    fixes=(MEND, option("cluster_workers", "more processes for verifiers, where these are too slow")),
    knobs={"most": "share of the leaves", "worse": "the same, for critical", "window": WINDOW},
)  # fmt: skip
def crashes(run: CheckedRun, *, most: float = 0.01, worse: float = 0.1, window: int = 10) -> Iterator[Symptom]:
    """Failed nodes: counted and shown, never a reward of zero."""
    try:
        lost = run.series("rollout/failed_share")
    except NotChecked:
        measured = list(_when_measured(run, most, worse))
        if not measured:
            raise
        yield from measured
        return
    spell = lost.beyond(most, worse, window)
    if spell is None:
        yield from _when_measured(run, most, worse)
    if spell is not None:
        means = lost.trailing(window)
        worst = int(means.steps[np.flatnonzero(means.values == spell.value)[-1]])
        causes = {name: _mean(run, f"rollout/failed/{name}", window, worst) for name in BREAKERS}
        what = max(causes, key=lambda name: causes[name])
        said = f", most often the {what}" if causes[what] > 0 else ""
        told = [why for step, why in run.causes() if step >= spell.start]
        said += f', as in "{shortened(told[-1])}"' if told else ""
        yield Symptom(
            spell.start, spell.severity, f"{spell.value:.1%} of the rollouts failed{said} (limit {most:.1%})",
            {"rollout/failed_share": spell.value, **{f"rollout/failed/{n}": c for n, c in causes.items() if c},
             "most": most, "worse": worse},
            run.show(spell, lambda r: leaves(r, r.is_("status", "failed")[r.leaf])), spell.until, _mend(told),
        )  # fmt: skip


def _when_measured(run: CheckedRun, most: float, worse: float) -> Iterator[Symptom]:
    """What broke in the last evaluation, which may be all there is of a run."""
    step = max((int(line["step"]) for line in run.lines if line["kind"] == "eval"), default=-1)
    told = [line for line in run.lines if line["kind"] == KIND and int(line["step"]) == step]
    failed = [line for line in run.lines if line["kind"] == "eval" and line["step"] == step and line.get("eval/failed")]
    if not (told and failed):
        return
    lost = told[-1]["failed"] / told[-1]["leaves"]
    if lost > most:
        yield Symptom(
            step, "critical" if lost > worse else "warning",
            f"{lost:.1%} of the rollouts of the last evaluation failed, "
            f'as in "{shortened(told[-1]["why"])}" (limit {most:.1%})',
            {"eval/failed": float(told[-1]["failed"]), "most": most, "worse": worse},
            fixes=_mend([str(told[-1]["why"])]),
        )  # fmt: skip


def _mend(told: Sequence[str]) -> tuple[Fix, ...]:
    """Where a failure names a file and a line, that these are to be mended; else nothing of its own."""
    found = _PLACE.search(told[-1]) if told else None
    return (work(f"mend {found['file']} line {found['line']}, then go on with --resume"),) if found else ()


def _mean(run: CheckedRun, name: str, window: int, step: int) -> float:
    """The trailing mean of a cause at a step; 0 where no event names causes (forests of other programs)."""
    try:
        means = run.series(name).trailing(window)
    except NotChecked:
        return 0.0
    found = means.values[means.steps == step]
    return float(found[0]) if len(found) else 0.0
