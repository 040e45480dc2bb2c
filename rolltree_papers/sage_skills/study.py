"""Does a policy learn to save what only a later task needs (SAGE)? Chains of two tasks, credited by the real credit.

Both tasks need the same four tokens. Writing them fails by `SLIP` a token; saving them too takes one more; calling
what was saved takes one and cannot fail. A task that failed saves nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rolltree.credit.registry import load_credit
from rolltree.tree import Tree
from rolltree.tree.table import table
from studies.lab.claim import Measured

SLIP, TOKENS, GROUP, PAIRS, STEPS, RATE = 0.1, 4, 8, 4, 300, 0.2
WRITE, SAVE, CALL = 0, 1, 2


def chances(logits: NDArray[np.float64], held: bool) -> NDArray[np.float64]:
    """Of writing, saving and calling; what is not there cannot be called."""
    z = np.where([True, True, held], logits, -np.inf)
    p = np.exp(z - z.max())
    return p / p.sum()


def trained(seed: int, bonus: float) -> dict[str, float]:
    """The policy after `STEPS` steps of policy gradient: how often it saves, calls, and solves the second task; and how
    often a bonus was paid on the way."""
    rng, credit = np.random.default_rng([22, seed]), load_credit("skill_chain", bonus=bonus)
    # The first task; the second without anything saved; the second with it.
    logits = np.zeros((3, 3))
    logits[:, SAVE] = logits[:, CALL] = -1.0
    seen, paid = list[tuple[float, float, float]](), 0
    for step in range(STEPS):
        trees, marks = [], list[tuple[int, NDArray[np.float64], int]]()
        for pair in range(PAIRS):
            tree = Tree(f"t{pair}", [0])
            for _ in range(GROUP):
                here, held, right = tree.root, False, 0.0
                for task in range(2):
                    row = 0 if task == 0 else 2 if held else 1
                    p = chances(logits[row], held)
                    act = int(rng.choice(3, p=p))
                    right = float(act == CALL or rng.random() < (1 - SLIP) ** (TOKENS + (act == SAVE)))
                    scores = {"task_reward": right, "used_skill": float(act == CALL)}
                    here = tree.extend(here, [act], status="done", scores=scores)
                    marks.append((row, p, act))
                    if step >= STEPS - 30:
                        seen.append((float(task), float(act), right))
                    # A skill that is used with success pays twice: for saving it and for the use.
                    paid += 2 * (bonus > 0 and act == CALL and right == 1.0)
                    held = task == 0 and act == SAVE and right == 1.0
                here.scores["reward"] = right
            trees.append(tree)
        rows = table(trees)
        worths = credit(rows).node
        assert worths is not None
        value = worths[rows.parent >= 0]
        for (row, p, act), worth in zip(marks, value.tolist(), strict=True):
            logits[row] -= RATE / (GROUP * PAIRS) * worth * p
            logits[row, act] += RATE / (GROUP * PAIRS) * worth
    first = [(a, r) for t, a, r in seen if t == 0]
    second = [(a, r) for t, a, r in seen if t == 1]
    return {
        "saved": float(np.mean([a == SAVE for a, _ in first])),
        "called": float(np.mean([a == CALL for a, _ in second])),
        "second": float(np.mean([r for _, r in second])),
        "paid": float(paid),
    }


def sage_skills(seed: int) -> Measured:
    """Second tasks solved with the bonuses for saving and using, against the same chains without them."""
    ours = trained(seed, 1.0)
    return Measured(ours["second"], trained(seed, 0.0)["second"], acted={"bonuses paid": ours["paid"]})
