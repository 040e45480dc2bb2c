"""Trees of latents as pictures: a thumbnail at every node, a path's steps as a strip. PNG and SVG by hand."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rolltree.tree import Node, Tree

Grey = NDArray[np.uint8]
THUMB = 32
"""Pixels of a thumbnail's side."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One step of a path."""

    place: int
    """Actions since the prompt, itself included."""
    noise: float
    """Factor of the noise that the step was drawn with; 0 = none."""
    image: Grey


def picture(action: Any) -> Grey | None:
    """A latent (with its noise behind it) as shades of grey, ink dark; None where the action is no square of pixels."""
    if np.ndim(action) != 1:
        return None
    side = math.isqrt(len(action) - 1)
    if side < 2 or side * side != len(action) - 1:
        return None
    pixels = np.clip(np.asarray(action[:-1], np.float64).reshape(side, side), -1, 1)
    return np.rint((1 - pixels) * 127.5).astype(np.uint8)


def frames(tree: Tree, node: Node | int) -> list[Frame]:
    """The pictures of a path in order; empty where its actions are no latents."""
    out: list[Frame] = []
    for place, action in enumerate(tree.prefix(node)[len(tree.root) :], 1):
        image = picture(action)
        if image is not None:
            out.append(Frame(place, float(action[-1]), image))
    return out


def png(image: Grey, scale: int = 4) -> bytes:
    """A grey PNG, each pixel as a square of `scale`."""
    large = np.repeat(np.repeat(image, scale, 0), scale, 1)
    height, width = large.shape
    rows = b"".join(b"\0" + row.tobytes() for row in large)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def data_uri(image: Grey, scale: int = 4) -> str:
    """The PNG as an address that needs no file."""
    return "data:image/png;base64," + base64.b64encode(png(image, scale)).decode("ascii")


def sheet(images: Sequence[Grey], columns: int, gap: int = 1) -> Grey:
    """Many pictures of one size in rows."""
    height, width = images[0].shape
    rows = -(-len(images) // columns)
    out = np.full((rows * (height + gap) + gap, columns * (width + gap) + gap), 200, np.uint8)
    for i, image in enumerate(images):
        y, x = gap + i // columns * (height + gap), gap + i % columns * (width + gap)
        out[y : y + height, x : x + width] = image
    return out


def strip_svg(found: Sequence[Frame], size: int = 48) -> str:
    """The steps of a path side by side, each with its place and noise."""
    if not found:
        return ""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" class="denoising" width="{len(found) * (size + 6)}" '
             f'height="{size + 16}" role="img" aria-label="{len(found)} steps of a path">']  # fmt: skip
    for i, frame in enumerate(found):
        x = i * (size + 6)
        parts.append(_image(frame.image, x, 0, size, f"step {frame.place}, noise {frame.noise:g}"))
        parts.append(_text(x + size / 2, size + 12, f"{frame.place}{'' if frame.noise else ' ode'}"))
    return "".join([*parts, "</svg>"])


def tree_svg(tree: Tree, chosen: int | None = None, thumb: int = THUMB) -> str:
    """A tree with the last picture of every node as a thumbnail; leaves carry their outcome."""
    leaves = {leaf.id: i for i, leaf in enumerate(tree.leaves())}
    end = {n.id: sum(len(x) for x in tree.path(n)) - len(tree.root) for n in tree}
    y: dict[int, float] = {}
    for node in reversed(list(tree.walk())):
        below = [y[c] for c in node.children]
        y[node.id] = sum(below) / len(below) if below else leaves[node.id] * (thumb + 8) + thumb / 2 + 4
    deepest = max(end.values(), default=0) or 1
    across = max(640, 60 * deepest)
    x = {id: 8 + place / deepest * (across - 120) for id, place in end.items()}
    on = {n.id for n in tree.path(chosen)} if chosen is not None and chosen in tree.nodes else set[int]()
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" class="image-tree" width="{across}" '
             f'height="{len(leaves) * (thumb + 8) + 8}" role="img" aria-label="tree {escape(tree.id, quote=True)} with '
             f'{len(leaves)} leaves">']  # fmt: skip
    for node in tree:
        if node.parent is not None:
            above = node.parent
            wide = 2.5 if node.id in on else 1
            parts.append(f'<path d="M{x[above] + thumb:.0f} {y[above]:.1f} L{x[node.id]:.0f} {y[node.id]:.1f}" '
                         f'stroke="#888" stroke-width="{wide}" fill="none"/>')  # fmt: skip
    for node in tree:
        image = picture(node.actions[-1]) if len(node) else None
        top = y[node.id] - thumb / 2
        told = f"node {node.id}, {len(node)} actions, {node.status}"
        if image is not None:
            parts.append(_image(image, x[node.id], top, thumb, told))
        else:
            parts.append(_text(x[node.id] + thumb / 2, y[node.id] + 4, "prompt" if node.parent is None else "·"))
        if node.is_leaf:
            reward = node.scores.get("reward")
            said = node.status if reward is None else f"{reward:.2f}"
            parts.append(_text(x[node.id] + thumb + 24, y[node.id] + 4, said))
    return "".join([*parts, "</svg>"])


def curve_svg(points: Sequence[tuple[float, float]], name: str, width: int = 480, height: int = 160) -> str:
    """A line over steps, from 0 to 1."""
    if not points:
        return ""
    last = max(x for x, _ in points) or 1
    at = " ".join(f"{30 + x / last * (width - 50):.1f},{10 + (1 - y) * (height - 40):.1f}" for x, y in points)
    ends = (_text(30, height - 8, "0"), _text(width - 20, height - 8, f"{last:g}"), _text(14, 16, "1"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" '
        f'aria-label="{escape(name, quote=True)}"><polyline points="{at}" fill="none" stroke="#2563eb" '
        f'stroke-width="2"/>{"".join(ends)}</svg>'
    )


def _image(image: Grey, x: float, y: float, size: int, told: str) -> str:
    return (f'<image x="{x:.0f}" y="{y:.1f}" width="{size}" height="{size}" style="image-rendering:pixelated" '
            f'href="{data_uri(image, 1)}"><title>{escape(told)}</title></image>')  # fmt: skip


def _text(x: float, y: float, said: str) -> str:
    return (f'<text x="{x:.0f}" y="{y:.1f}" font-size="10" text-anchor="middle" fill="currentColor">'
            f"{escape(said)}</text>")  # fmt: skip
