"""Decks of slides from a brief: `2 slides on reefs for experts` becomes `reefs:coral,tide|experts:proof`.

Slides stand between `|`, each a title, a colon and points between commas. A deck is laid out on a picture of letters,
and read back by an exact reader who has not seen the brief.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar

from rolltree.task.items import SingleTurn, check_level, digest, stream
from rolltree.task.protocol import Item, Split, Verdict

TOPICS: Mapping[str, tuple[str, ...]] = {
    "cities": ("street", "tower", "metro"), "energy": ("grid", "wind", "coal"), "health": ("clinic", "nurse", "sleep"),
    "reefs": ("coral", "tide", "fish"), "school": ("lesson", "pupil", "exam"), "trade": ("ship", "port", "price"),
}  # fmt: skip
"""What a deck may be on, and the words that belong to it."""
READERS: Mapping[str, tuple[str, ...]] = {
    "children": ("story", "game"), "experts": ("proof", "data"), "managers": ("chart", "goal"),
}  # fmt: skip
"""Whom it may be for, and the words that are chosen for them."""
SHAPES = {1: (1, 2), 2: (2, 3), 3: (2, 4), 4: (3, 5)}
"""Level -> how many topics and slides are asked for."""
POINTS, WIDE, HIGH = 3, 14, 4
"""Most points of a slide; columns and lines of its picture."""


@dataclass(frozen=True)
class Slides(SingleTurn):
    """Write the deck that a brief asks for. The score is 1 for one that keeps every rule, fits and reads back whole.

    Parts, each from 0 to 1: `rules` (as many slides as asked for, each with a title and one to three points), `render`
    (share of slides that fit on their picture), `content` (share of the topics that are said something about),
    `look_html` (share of words that stand there once), `look_png` (how evenly pictures are filled) and `brief` (topics,
    reader and number of slides, read off the deck alone).
    """

    measures: ClassVar[frozenset[str]] = frozenset({"brief", "content", "look_html", "look_png", "render", "rules"})
    level: int = 2
    name: str = field(default="slides", init=False)
    stop: tuple[str, ...] = field(default=("\n",), init=False)
    max_tokens: int = 96
    max_turns: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_level(self.name, self.level, tuple(SHAPES))

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """Briefs; the same brief with its topics in another order stays in its split."""
        return stream(self.name, self.level, split, seed, partial(_draw, self.level))

    async def verify(self, item: Item, state: Any, text: str) -> Verdict:
        """Measure a deck."""
        deck = text.partition("\n")[0]
        slides = _slides(deck)
        pictures = [_picture(title, points) for title, points in slides]
        words = [word for title, points in slides for word in (title, *points) if word]
        asked, found = item.meta, read(deck)
        said = [topic for topic in asked["topics"] if set(TOPICS[topic]) & set(words)]
        parts = {
            "rules": _rules(slides, asked["slides"]),
            "render": sum(picture is not None for picture in pictures) / len(pictures),
            "content": len(said) / len(asked["topics"]),
            "look_html": len(set(words)) / max(len(words), 1),
            "look_png": sum(_even(picture) for picture in pictures) / len(pictures),
            "brief": _recovered(asked, found),
        }
        short = [name for name in ("rules", "render", "content", "brief") if parts[name] < 1]
        why = f"not whole: {', '.join(short)}" if short else ""
        return Verdict(float(not short), parts, deck.strip() or None, why)

    def act(self, item: Item, state: Any, rng: Random, noise: float = 0.0) -> str:
        """A slide on each topic, then slides for the reader; with probability `noise` a word is another one."""
        known = [*TOPICS, *READERS, *(word for words in (*TOPICS.values(), *READERS.values()) for word in words)]
        topics, reader = list(item.meta["topics"]), item.meta["reader"]
        made = [(topic, TOPICS[topic][:2]) for topic in topics]
        made += [(reader, (word,)) for word in READERS[reader]][: item.meta["slides"] - len(topics)]

        def said(word: str) -> str:
            return rng.choice(known) if rng.random() < noise else word

        return "|".join(f"{said(title)}:{','.join(map(said, points))}" for title, points in made) + "\n"


def read(deck: str) -> Mapping[str, Any]:
    """What a deck is on, whom it is for and how long it is, for one who knows the words and not the brief."""
    words = [word for title, points in _slides(deck) for word in (title, *points)]
    topics = {topic for topic, own in TOPICS.items() if topic in words or set(own) & set(words)}
    votes = {r: sum(word == r or word in own for word in words) for r, own in READERS.items()}
    reader = max(votes, key=lambda r: votes[r])
    return {"topics": topics, "reader": reader if votes[reader] else "", "slides": len(_slides(deck))}


def _slides(deck: str) -> list[tuple[str, tuple[str, ...]]]:
    """Titles with their points."""
    halves = [slide.partition(":") for slide in deck.split("|")]
    return [(title.strip(), tuple(p.strip() for p in points.split(",") if p.strip())) for title, _, points in halves]


def _rules(slides: list[tuple[str, tuple[str, ...]]], asked: int) -> float:
    count = min(len(slides), asked) / max(len(slides), asked)
    titled = sum(bool(title) for title, _ in slides) / len(slides)
    pointed = sum(1 <= len(points) <= POINTS for _, points in slides) / len(slides)
    return (count + titled + pointed) / 3


def _picture(title: str, points: tuple[str, ...]) -> tuple[str, ...] | None:
    """Lines of letters; None where a line is too wide, or there are too many."""
    lines = (title.upper(), *(f"- {point}" for point in points))
    return lines if len(lines) <= HIGH and all(len(line) <= WIDE for line in lines) else None


def _even(picture: tuple[str, ...] | None) -> float:
    """1 where half of the picture is filled, less the further from it; 0 where nothing was rendered."""
    if picture is None:
        return 0.0
    return 1 - abs(2 * sum(map(len, picture)) / (WIDE * HIGH) - 1)


def _recovered(asked: Mapping[str, Any], found: Mapping[str, Any]) -> float:
    wanted = set(asked["topics"])
    topics = len(wanted & found["topics"]) / max(len(wanted | found["topics"]), 1)
    return (topics + (found["reader"] == asked["reader"]) + (found["slides"] == asked["slides"])) / 3


def _draw(level: int, rng: Random) -> tuple[str, Item]:
    count, slides = SHAPES[level]
    topics, reader = tuple(rng.sample(sorted(TOPICS), count)), rng.choice(sorted(READERS))
    prompt = f"{slides} slides on {' and '.join(topics)} for {reader}\n"
    meta = {"topics": topics, "reader": reader, "slides": slides}
    return f"{sorted(topics)}/{reader}/{slides}", Item(f"slides-{digest(prompt)}", prompt, prompt.strip(), level, meta)
