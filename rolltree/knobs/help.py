"""What knobs mean: the text under each field of a dataclass, else what many recipes, credits and controls share."""

from __future__ import annotations

import ast
import sys
from dataclasses import is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

COMMON = {
    "group": "Rollouts of each prompt.",
    "clip": "How far the ratio may leave 1 on either side before its gradient is cut.",
    "clip_low": "How far the ratio may fall below 1 before its gradient is cut.",
    "clip_high": "How far the ratio may rise above 1 before its gradient is cut.",
    "kl": "Weight of the KL penalty towards the starting policy; 0 = none.",
    "dual": "Bound of the loss where the advantage is negative (dual clip); none when left out.",
    "against": "What the ratio divides by: the weights at the start of the step, or the distribution sampled from.",
    "updates": "Optimizer updates on the rollouts of a step.",
    "gamma": "Discount of what comes later.",
    "leaves": "Finished rollouts of each prompt.",
    "rounds": "Most rounds of sampling in a step.",
    "sampling_rounds": "Most rounds of sampling while filters leave the step short of prompts.",
    "max_tokens": "Most policy tokens of a path; the task's own limit when left out.",
    "ways": "Branches of a fork.",
    "ddof": "1 divides the variance by the size of the group less one, 0 by its size.",
    "eps": "Added to a divisor so that it is never zero.",
    "by": "What the leaves are compared within: a tree, all trees of an item, or the batch.",
    "std": "Whether advantages are divided by the standard deviation.",
    "base": "The credit this one starts from, by name.",
    "correct": "Outcomes above this count as right.",
    "singleton": "What a group of one gets: zero, its raw reward, or nothing (it is skipped).",
    "backup": "How the value of a node follows from what is below it.",
    "place": "Whether eps is added inside the root or outside of it.",
    "whiten": "Whether advantages are shifted to mean 0 and scaled to deviation 1.",
    "averaging": "What the weight of a leaf is shared over: all tokens, its length, its group's tokens, a constant.",
    "overlong": "Whether answers that end at the token limit are punished for their length.",
    "seed": "Where chance starts: the same seed gives the same result.",
}
"""Of the knobs that several parts share. A knob with a text of its own keeps that."""


@cache
def sentences(shape: type[Any]) -> dict[str, str]:
    """What the text under each field of a dataclass says, those of its bases included."""
    out: dict[str, str] = {}
    for cls in reversed(shape.__mro__):
        module = sys.modules.get(cls.__module__)
        if not is_dataclass(cls) or module is None or not getattr(module, "__file__", None):
            continue
        for node in ast.walk(_source(str(module.__file__))):
            if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                for field, text in zip(node.body, node.body[1:], strict=False):
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and _text(text):
                        out[field.target.id] = " ".join(_text(text).split())
    return out


def _text(node: ast.stmt) -> str:
    """What a bare string says; nothing for any other statement."""
    value = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
    return value if isinstance(value, str) else ""


@cache
def _source(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))
