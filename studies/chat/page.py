"""The page of the chat model that learned: table, curves and numbers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rolltree.compare.stats.paired import t_interval
from rolltree.compare.trace import write_json
from rolltree.tree.store.values import read_json
from studies.exact.chart import lines

ENOUGH = 0.3
"""Gain of the format reward that is asked for."""
LIMIT = 2400
"""Processor seconds that it may cost: 20 minutes on two cores."""


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluation on held-out items."""

    step: int
    form: float
    """Mean of the format reward."""
    right: float
    """Mean of the answer reward."""
    processor: float
    """Processor seconds until then, evaluations included."""
    seconds: float


@dataclass(frozen=True, slots=True)
class Curve:
    """One run."""

    recipe: str
    way: str
    seed: int
    points: tuple[Point, ...]

    @property
    def gain(self) -> float:
        """By how much the format reward rose from the first evaluation to the last."""
        return self.points[-1].form - self.points[0].form

    @property
    def enough_at(self) -> float | None:
        """Processor seconds at the first evaluation with enough gain; None where there was none."""
        return next((p.processor for p in self.points if p.form - self.points[0].form >= ENOUGH), None)


def read(out: Path, steps: int) -> list[Curve]:
    """The runs of so many steps whose numbers stand beside the page; none where there is no page."""
    path = out / "chat-learning.json"
    told = read_json(path.read_bytes()) if path.is_file() else []
    curves = [Curve(c["recipe"], c["way"], int(c["seed"]), tuple(Point(**p) for p in c["points"])) for c in told]
    return [c for c in curves if c.points[-1].step == steps]


def write(out: Path, curves: Sequence[Curve], commands: Sequence[Sequence[str]], seeds: int) -> None:
    """The page, its figure and the numbers behind both; nothing where no run has finished."""
    if not curves:
        print("no run has finished, so there is nothing to publish yet")
        return
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "chat-learning.json", [asdict(curve) for curve in curves])
    drawn = {
        f"{c.recipe}, {c.way}, seed {c.seed}": [(p.processor, p.form, 0.0) for p in c.points] for c in curves
    }  # fmt: skip
    figure = lines("Format reward on held-out prompts", "processor seconds", "format reward", drawn, log=False)
    (out / "chat-learning.svg").write_text(figure, encoding="utf-8")
    kinds = list(dict.fromkeys((c.recipe, c.way) for c in curves))
    rows = [_row([c for c in curves if (c.recipe, c.way) == kind]) for kind in kinds]
    told = "\n".join("rolltree " + shlex.join(words) for words in commands)
    of = sum(c.gain >= ENOUGH and (c.enough_at or LIMIT) < LIMIT for c in curves)
    page = _PAGE.format(
        heads=f"| {' | '.join(_HEADS)} |\n{'|---' * len(_HEADS)}|",
        rows="\n".join(rows),
        commands=told,
        stands=len(curves),
        all=len(commands) * seeds,
        reached=of,
        limit=LIMIT,
    )
    (out / "chat-learning.md").write_text(page, encoding="utf-8")


def _row(curves: Sequence[Curve]) -> str:
    form = ", ".join(f"{c.points[0].form:.0%} → {c.points[-1].form:.0%}" for c in curves)
    right = ", ".join(f"{c.points[0].right:.0%} → {c.points[-1].right:.0%}" for c in curves)
    gain = t_interval([c.gain for c in curves])
    spread = f" ({100 * gain.low:+.0f} to {100 * gain.high:+.0f})" if len(curves) > 1 else ""
    until = ", ".join("never" if c.enough_at is None else f"{c.enough_at:.0f}" for c in curves)
    whole = ", ".join(f"{c.points[-1].processor:.0f}" for c in curves)
    wall = ", ".join(f"{c.points[-1].seconds / 60:.0f}" for c in curves)
    first = curves[0]
    return (
        f"| {first.recipe} | {first.way} | {', '.join(str(c.seed) for c in curves)} | {form} | "
        f"{100 * gain.estimate:+.0f}{spread} | {right} | {until} | {whole} | {wall} |"
    )


_HEADS = (
    "recipe", "trained", "seeds", "format reward before → after", "gain in points (95 % t interval)",
    "answers right before → after", "processor seconds until +30", "of the whole run", "wall minutes",
)  # fmt: skip

_PAGE = """\
# A real chat model learns on a laptop

SmolLM2-135M-Instruct (`rolltree models get smollm2-135m`), asked in its own chat template, on a file of sums
(`examples/chat/make_sums.py`; 274 training items and 46 held-out ones) with two rewards: `equation`, a function of
`examples/chat/rewards.py`, is 1 where the whole answer is one equation such as `4 + 5 = 9`; `number` is 1 where the
last number is right. Both are measured on all held-out prompts, two samples each at temperature 1.

**{reached} of {stands} finished runs** raised the format reward by at least 30 points within {limit} processor seconds
(20 minutes on two cores); {stands} of the {all} runs of the plan are finished. Float32, one thread. The knobs were
chosen by short runs on seed 100.

{heads}
{rows}

![Format reward on held-out prompts against processor seconds](chat-learning.svg)

Processor seconds are those of steps and evaluations, not of loading the model. The runs shared two cores with other
work at the lowest priority, so their wall time says more about that work than about them.

## Repeat it

```
rolltree models get smollm2-135m
python -m studies.chat.learn
```

makes every run whose numbers do not stand beside this page, one after the other (with `--again`, all of them), and
writes the page; it may be stopped and called again. Single runs, in a checkout:

```
python examples/chat/make_sums.py sums.jsonl
{commands}
```

The numbers behind the figure are in `chat-learning.json`.
"""
