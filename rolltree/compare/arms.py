"""What is compared: recipes, with knobs set or swept, as labelled arms."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from rolltree.compare.trace import LabError
from rolltree.recipe.swap import named

Value = int | float | str | bool | None | tuple[int | float | str, ...]
Knobs = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Arm:
    """One side of a comparison. Knobs named `train.X` or `optim.X` belong to the trainer, `control` and `control.X` put
    another control over the recipe, all others are the recipe's."""

    label: str
    recipe: str
    knobs: Knobs = ()


def setting(text: str) -> tuple[str, Value]:
    """One knob as `name=value`; numbers, booleans, None and tuples are read as such, anything else is text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise LabError(f"cannot read the knob {text!r}: write name=value")
    return name.strip(), _value(value.strip())


def swept(text: str) -> tuple[str, tuple[Value, ...]]:
    """A sweep as `name=a,b,c`."""
    name, equals, values = text.partition("=")
    out = tuple(_value(v.strip()) for v in values.split(",") if v.strip())
    if not equals or not name.strip() or not out:
        raise LabError(f"cannot read the sweep {text!r}: write name=a,b,c")
    if len(set(map(repr, out))) < len(out):
        raise LabError(f"the sweep {text!r} names a value twice")
    return name.strip(), out


def arms(recipes: Sequence[str], settings: Sequence[str] = (), sweeps: Sequence[str] = ()) -> tuple[Arm, ...]:
    """Every recipe with every combination of swept values. `recipe:knob=value` sets a knob of one recipe only.

    A recipe may bring its knobs, `arpo(first=16)`: that is how it is compared with itself. What is swept goes before
    what is set, what is set for one recipe before what is set for all, in any order, and what it brings before both.
    """
    fixed = [_owned(s) for s in settings]
    brought = {recipe: named(recipe) for recipe in recipes}
    known = [name for name, _ in brought.values()]
    for owner, text in fixed:
        if owner and owner not in known:
            raise LabError(f"the setting {owner}:{text} is for a recipe that is not compared: {', '.join(known)}")
    axes = [swept(s) for s in sweeps]
    out: list[Arm] = []
    for recipe in recipes:
        name, knobs = brought[recipe]
        own = {knob: value for of in ("", name) for knob, value in (setting(t) for o, t in fixed if o == of)} | knobs
        for values in product(*(values for _, values in axes)):
            chosen = dict(zip((knob for knob, _ in axes), values, strict=True))
            label = " ".join([recipe, *(f"{knob}={value}" for knob, value in chosen.items())])
            out.append(Arm(label, name, tuple(sorted({**own, **chosen}.items()))))
    labels = [a.label for a in out]
    if len(set(labels)) < len(labels):
        raise LabError("the same recipe is named twice; sweep or set a knob to tell the two apart")
    return tuple(out)


def _owned(text: str) -> tuple[str, str]:
    head, equals, value = text.partition("=")
    owner, _, knob = head.rpartition(":")
    return owner, f"{knob}{equals}{value}"


def _value(text: str) -> Value:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)
