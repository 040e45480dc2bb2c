"""Figures of a run on digits for the documentation: `python -m studies.latents.pictures RUN --into docs/img`.

They are what `studies.lab.digits.show` has on its page: the curve of held-out outcomes, pictures of the same labels
and seeds before and after, and a tree of the last saved step.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from rolltree.latents.images import curve_svg, png, sheet, tree_svg
from rolltree.metrics.log import read_metrics
from rolltree.training.checkpoint import latest
from rolltree.tree.store.parquet import parts, read_trees
from studies.exact.chart import DARK
from studies.lab.digits.show import drawn


@dataclass(frozen=True)
class Pictures:
    """What to write where."""

    run: Annotated[Path, tyro.conf.Positional]
    into: Path = Path("docs/img")
    each: int = 4
    """Pictures of each label."""


def main(asked: Pictures) -> None:
    """Write four files."""
    newest = latest(asked.run / "checkpoints")
    assert newest is not None, "the run has no checkpoint"
    for name, model in (("before", "digits"), ("after", newest.path)):
        (asked.into / f"digits-{name}.png").write_bytes(png(sheet(drawn(model, asked.each), 10)))
    lines = [line for line in read_metrics(asked.run / "metrics.jsonl") if line["kind"] == "eval"]
    curve = curve_svg([(float(x["step"]), float(x["eval/reward"])) for x in lines], "mean held-out outcome over steps")
    tree = next(iter(read_trees(parts(asked.run / "forests")[-1][1])))
    best = max(tree.leaves(), key=lambda leaf: leaf.scores.get("reward", 0.0))
    for name, svg in (("curve", curve), ("tree", tree_svg(tree, best.id))):
        head, rest = svg.split(">", 1)
        (asked.into / f"digits-{name}.svg").write_text(
            f'{head}>{DARK}<rect width="100%" height="100%" fill="white"/>{rest}\n'
        )


if __name__ == "__main__":
    main(tyro.cli(Pictures))
