"""Trees of images: thumbnails, strips, PNG files, and the viewer's page of them."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np

from rolltree.analysis.source import open_source
from rolltree.analysis.text import pieces_of
from rolltree.generate.branches import Branches
from rolltree.latents.images import curve_svg, frames, picture, png, sheet, strip_svg, tree_svg
from rolltree.tree import Tree
from rolltree.tree.store.parquet import save
from rolltree.view.model import excerpts
from rolltree.view.outline import outline
from tests.latents.tiny import grown


def test_a_png_holds_the_pixels() -> None:
    image = np.arange(16, dtype=np.uint8).reshape(4, 4) * 15
    data = png(image, 2)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (8, 8)
    start = data.index(b"IDAT") + 4
    size = struct.unpack(">I", data[start - 8 : start - 4])[0]
    rows = zlib.decompress(data[start : start + size])
    first = np.frombuffer(rows[1:9], np.uint8)
    assert np.array_equal(first, np.repeat(image[0], 2))


def test_ink_is_dark_and_tokens_are_no_pictures() -> None:
    action = np.append(np.full(64, 1.0), 0.7).astype(np.float32)
    image = picture(action)
    assert image is not None
    assert int(image.max()) == 0
    assert picture(np.int32(7)) is None
    assert picture(np.zeros(8, np.float32)) is None


def test_every_node_has_a_thumbnail_and_a_path_its_steps(tmp_path: Path) -> None:
    tree = next(iter(grown(Branches((1, 3), first=2))))
    leaf = tree.leaves()[0]
    drawn = tree_svg(tree, leaf.id)
    assert drawn.count("<image") == len(tree) - 1
    assert drawn.count('stroke-width="2.5"') == tree.depth(leaf)
    assert f"{leaf.scores['reward']:.2f}" in drawn
    steps = frames(tree, leaf)
    assert [f.place for f in steps] == [1, 2, 3, 4, 5, 6, 7]
    assert strip_svg(steps).count("<image") == 7
    assert " ode" in strip_svg(steps)
    assert not frames(Tree("t", [1, 2]), 0)
    assert not strip_svg([])
    assert sheet([f.image for f in steps], 4).shape == (2 * 9 + 1, 4 * 9 + 1)
    assert "<polyline" in curve_svg([(0, 0.5), (10, 0.9)], "outcome")


def test_the_viewer_opens_trees_of_latents(tmp_path: Path) -> None:
    forest = grown(Branches((1, 3), first=2))
    source = open_source(save(forest, tmp_path / "forest", states="drop"))
    tree = outline(source.archive(None), next(iter(forest)).id)
    assert tree.latents
    assert excerpts(tree, pieces_of(source))(1) == ""
