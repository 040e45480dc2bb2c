"""Chains of digits of which only the whole is rewarded: hints that shrink as they are needed less, and how they teach.

A prompt asks for eight digits; the policy is a row of logits per prompt and place. Rollouts become trees, hints forced
nodes in them, and what they teach is the shipped credit and the shipped mask at a ratio of 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from rolltree.credit.fold import fold, leaf_weights
from rolltree.credit.registry import load_credit
from rolltree.objective.batch import Batch
from rolltree.objective.forced import HintMask
from rolltree.tree import Tree
from rolltree.tree.table import Floats, table
from studies.lab.claim import Measured

PLACES, DIGITS, PROMPTS = 8, 10, 12
Share = Callable[[float], float]
"""Share of the answer shown, given the failure rate of the unhinted half."""


@dataclass(frozen=True)
class HintWay:
    """How prompts are hinted, compared and taught."""

    share: Share
    credit: str = "hinted"
    masked: bool = True


def adaptive(missed: float) -> float:
    """ADHint's: from 0.1 to 0.8; nothing where all were solved."""
    return 0.1 + 0.7 * missed if missed > 0 else 0.0


WAYS = {
    "ADHint": HintWay(adaptive),
    "half always shown": HintWay(lambda _: 0.5, "grpo", masked=False),
    "half always shown, masked": HintWay(lambda _: 0.5),
    "ADHint without masking": HintWay(adaptive, masked=False),
    "no hint": HintWay(lambda _: 0.0, "grpo"),
}


def start(rng: np.random.Generator) -> Floats:
    """Logits at which the right digit (the first of its row) has a chance of 0.35 to 0.85, prompt by prompt."""
    right = np.repeat(rng.uniform(0.35, 0.85, PROMPTS)[:, None], PLACES, 1)
    logits = 0.3 * rng.normal(size=(PROMPTS, PLACES, DIGITS))
    rest = np.log(np.exp(logits[..., 1:]).sum(-1))
    logits[..., 0] = np.log(right / (1 - right)) + rest
    return logits


def success(logits: Floats) -> Floats:
    """Chance that all places of each prompt come out right unhinted."""
    return np.exp(np.log(_softmax(logits)[..., 0]).sum(-1))


def train(
    way: HintWay, seed: int, steps: int = 80, group: int = 16, rate: float = 4.0, shown: list[int] | None = None
) -> list[float]:
    """Mean unhinted success on the harder half of the prompts, step by step. `shown` takes the length of the hint of
    each prompt and step."""
    rng = np.random.default_rng([43, seed])
    logits = start(rng)
    hard = np.argsort(success(logits))[: PROMPTS // 2]
    out = [float(success(logits)[hard].mean())]
    for _ in range(steps):
        policy = _softmax(logits)
        trees = [_grown(i, policy[i], way, group, rng) for i in range(PROMPTS)]
        if shown is not None:
            shown += [sum(len(n) for n in tree if n.role == "hint") for tree in trees]
        logits = logits + rate * PROMPTS * _direction(trees, policy, way)
        out.append(float(success(logits)[hard].mean()))
    return out


def _grown(number: int, policy: Floats, way: HintWay, group: int, rng: np.random.Generator) -> Tree:
    tree = Tree(f"p{number}", [0])
    solved = [_rolled(tree, policy, 0, rng) for _ in range(group // 2)]
    shown = min(round(PLACES * way.share(1 - float(np.mean(solved)))), PLACES - 1)
    for _ in range(group - group // 2):
        _rolled(tree, policy, shown, rng)
    return tree


def _rolled(tree: Tree, policy: Floats, shown: int, rng: np.random.Generator) -> float:
    above = tree.root
    if shown:
        known = next((c for c in tree.children(tree.root) if c.role == "hint"), None)
        above = known or tree.extend(
            tree.root, [0] * shown, role="hint", forced=True, trainable=True, status="done", notes={"first": 0}
        )
    digits = [int(rng.choice(DIGITS, p=policy[place])) for place in range(shown, PLACES)]
    reward = float(not any(digits))
    tree.extend(above, digits, status="done", scores={"reward": reward}, notes={"first": shown})
    return reward


def _direction(trees: list[Tree], policy: Floats, way: HintWay) -> Floats:
    """The gradient of the surrogate at a ratio of 1 with respect to the logits."""
    view = table(trees)
    advantage = load_credit(way.credit)(view)
    folded = fold(view, advantage, leaf_weights(view, "sequence", counted=advantage.counted))
    gain, loss = torch.tensor(folded.gain), torch.tensor(folded.loss)
    if way.masked:
        forced = torch.tensor(np.repeat([n.forced for n in view.nodes], view.length))
        zero = torch.zeros_like(gain)
        taught, _ = HintMask()(Batch(zero, zero, gain, loss, torch.tensor(folded.weight), forced=forced))
        gain, loss = taught.gain, taught.loss
    push = (gain + loss).numpy()
    prompt = np.repeat(view.tree, view.length)
    first = np.array([int(n.notes.get("first", 0)) for n in view.nodes])
    place = np.arange(len(push)) - np.repeat(view.start, view.length) + np.repeat(first, view.length)
    at = np.flatnonzero(push)
    step = np.zeros_like(policy)
    np.add.at(step, (prompt[at], place[at], view.flat("actions")[at].astype(np.int64)), push[at])
    np.subtract.at(step, (prompt[at], place[at]), push[at, None] * policy[prompt[at], place[at]])
    return step


def _softmax(logits: Floats) -> Floats:
    e = np.exp(logits - logits.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def adhint(seed: int) -> Measured:
    """Unhinted success on the harder half of the prompts: ADHint against half of the answer for everybody."""
    hints = {name: list[int]() for name in WAYS}
    curves = {name: train(way, seed, shown=hints[name]) for name, way in WAYS.items()}
    shown = {name: ([float(i) for i in range(len(c))], c) for name, c in curves.items()}
    other = sum(length != PLACES // 2 for length in hints["ADHint"])
    acted = {"hints longer or shorter than half": float(other)}
    return Measured(curves["ADHint"][-1], curves["half always shown"][-1], shown, acted)
