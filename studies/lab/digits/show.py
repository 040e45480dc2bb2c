"""A run on digits as one page: its curve, pictures before and after, trees of images.

    python -m studies.lab.digits.show RUN --out pictures.html

The same labels and the same seeds are drawn with the model that the run began with and with its newest checkpoint.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from html import escape
from itertools import islice
from pathlib import Path
from typing import Annotated

import tyro

from rolltree.engine.protocol import Request, Sampling
from rolltree.errors import RolltreeError
from rolltree.latents.engine import LatentEngine
from rolltree.latents.images import Grey, curve_svg, data_uri, frames, picture, sheet, strip_svg, tree_svg
from rolltree.metrics.log import read_metrics
from rolltree.policy.load import load_model
from rolltree.training.checkpoint import latest
from rolltree.tree.store.atomic import new_file
from rolltree.tree.store.parquet import parts, read_trees


@dataclass(frozen=True)
class ShowArguments:
    """What to show."""

    run: Annotated[Path, tyro.conf.Positional]
    """A run's folder."""
    out: Path = Path("pictures.html")
    before: str = "digits"
    """The model that it began with."""
    each: int = 4
    """Pictures of each label."""
    trees: int = 2


def drawn(model: str | Path, each: int) -> list[Grey]:
    """Pictures of every label in turn, always of the same seeds."""
    loaded = load_model(model)
    if not hasattr(loaded.model, "spec"):
        raise RolltreeError(f"{model} draws no pictures; give a run on the task digits")

    async def run() -> list[Grey]:
        engine = LatentEngine(loaded.model)
        labels = [label for _ in range(each) for label in range(engine.codec.classes)]
        asked = (engine.submit(Request(engine.codec.encode(c), Sampling(seed=i))) for i, c in enumerate(labels))
        samples = await asyncio.gather(*asked)
        await engine.close()
        found = (picture(s.actions[-1]) for s in samples)
        return [image for image in found if image is not None]

    return asyncio.run(run())


def page(asked: ShowArguments) -> str:
    """The page as one text."""
    newest = latest(asked.run / "checkpoints")
    if newest is None:
        raise RolltreeError(f"{asked.run} has no checkpoint to draw with; train with --checkpoint-every, or to its end")
    lines = [line for line in read_metrics(asked.run / "metrics.jsonl") if line["kind"] == "eval"]
    points = [(float(line["step"]), float(line["eval/reward"])) for line in lines]
    out = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(asked.run.name)}</title>",
        "<body style='font-family:sans-serif;max-width:70em;margin:2em auto'>",
        f"<h1>{escape(asked.run.name)}</h1><h2>Mean outcome on held-out labels, over steps</h2>",
        curve_svg(points, "mean outcome over steps"),
        f"<p>{points[0][1]:.3f} before, {points[-1][1]:.3f} after {points[-1][0]:g} steps.</p>" if points else "",
    ]
    for name, model in (("Before", asked.before), ("After", newest.path)):
        image = sheet(drawn(model, asked.each), 10)
        out.append(f"<h2>{name}: labels 0 to 9, the same seeds</h2><img alt='{name}' src='{data_uri(image, 5)}' "
                   "style='image-rendering:pixelated'>")  # fmt: skip
    for step, folder in parts(asked.run / "forests")[-1:]:
        for tree in islice(read_trees(folder), asked.trees):
            best = max(tree.leaves(), key=lambda leaf: leaf.scores.get("reward", 0.0))
            out.append(f"<h2>Tree {escape(tree.id)} of step {step}</h2>{tree_svg(tree, best.id)}"
                       f"<h3>The best leaf's steps</h3>{strip_svg(frames(tree, best))}")  # fmt: skip
    return "\n".join([*out, "</body></html>"])


def main(asked: ShowArguments) -> None:
    """Write the page."""
    told = page(asked)
    with new_file(asked.out, overwrite=True) as sink:
        sink.write(told)
    print(f"{asked.out}: {len(told) / 1000:.0f} kB")


if __name__ == "__main__":
    main(tyro.cli(ShowArguments))
