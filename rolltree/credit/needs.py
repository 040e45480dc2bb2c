"""What a credit needs, checked against a forest before anything is computed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rolltree.credit.advantage import Credit, CreditError
from rolltree.credit.entropy_shaping import confidence
from rolltree.credit.levels import plans
from rolltree.credit.outcome import action_values, leaf_scores, node_scores, outcomes, root_scores, where
from rolltree.credit.pairwise import judged_leaves
from rolltree.credit.sets import answers
from rolltree.credit.steps import require_states, steps
from rolltree.tree.table import Table


def check_needs(table: Table, credit: Credit) -> None:
    """Raise CreditError with a sentence naming tree and node for the first need the forest does not meet.

    A need is "reward", "state_key", "entropy", "logp", "sampling_logprob", or KIND:NAME with KIND one of action (an
    array in notes), leaf, judged, root, turn, end (scores), leaf-note, turn-note (notes), level, top.
    """
    if table.nodes and not table.live.any():
        raise CreditError(
            f"none of the {len(table.leaf)} leaves is done with a reward; verify the rollouts first "
            "(failed, pruned and dropped leaves never teach)"
        )
    for need in sorted(credit.needs):
        kind, _, name = need.partition(":")
        check = _CHECKS.get(kind)
        if check is None:
            raise CreditError(f"need {need!r} is unknown; kinds: {', '.join(sorted(_CHECKS))}")
        check(table, name or kind)


def _turn(table: Table, name: str) -> None:
    node_scores(table, name, steps(table).row)


def _turn_note(table: Table, name: str) -> None:
    for row in steps(table).row:
        if name not in table.nodes[row].notes:
            raise CreditError(f"{where(table, int(row))} has no notes[{name!r}]; write it when the turn is parsed")


def _end(table: Table, name: str) -> None:
    has = np.isfinite(table.score(name)).astype(np.float64)
    lacking = table.leaf[table.live & (table.down(has)[table.leaf] == 0)]
    if len(lacking):
        raise CreditError(f"no node at or above {where(table, int(lacking[0]))} has a {name!r}; score where tasks end")


def _leaf_note(table: Table, name: str) -> None:
    if name == "answer":
        answers(table)


_CHECKS: dict[str, Callable[[Table, str], object]] = {
    "reward": lambda table, _: outcomes(table),
    "state_key": lambda table, _: require_states(table, steps(table)),
    "entropy": action_values,
    "logp": action_values,
    "sampling_logprob": action_values,
    "action": action_values,
    "leaf": leaf_scores,
    "judged": lambda table, name: leaf_scores(table, name, judged_leaves(table)),
    "root": root_scores,
    "turn": _turn,
    "turn-note": _turn_note,
    "leaf-note": _leaf_note,
    "end": _end,
    "level": lambda table, _: plans(table, "a two-level credit"),
    "top": lambda table, name: confidence(table, int(name)),
}
