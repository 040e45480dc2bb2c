"""Answers that stand where the policy only has to copy them: in the prompt, or in whatever a tool replies."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.fix import work
from rolltree.doctor.run import MOST_PLACES, CheckedRun, places
from rolltree.doctor.series import NotChecked
from rolltree.metrics.rollouts import Rollouts
from rolltree.task.protocol import EXPECTED
from rolltree.tree.node import Array


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
