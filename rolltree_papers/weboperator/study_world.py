"""A site that forgets and does not forgive: pages, panels, deletions and popups, as one tab sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Literal


@dataclass(frozen=True, slots=True)
class Thing:
    """What can be clicked: a link to a page, a panel, a deletion, or the end."""

    label: str
    kind: Literal["link", "panel", "delete", "stop"]
    page: int = -1


@dataclass(frozen=True, slots=True)
class Page:
    """Things that are always listed, and those that its panel adds in front."""

    listed: tuple[Thing, ...]
    hidden: tuple[Thing, ...] = ()


@dataclass(frozen=True, slots=True)
class Site:
    """A tree of pages with links down and up; the goal is one of the deepest."""

    pages: tuple[Page, ...]
    goal: int
    way: frozenset[int]
    """The goal and all pages above it."""

    def good(self, page: int, thing: Thing) -> bool:
        """Whether a click leads to the goal on the shortest way."""
        if thing.kind == "stop":
            return page == self.goal
        if thing.kind == "panel":
            return any(other.page in self.way for other in self.pages[page].hidden)
        # Pages are numbered layer by layer: what leads up has the smaller number.
        down = thing.page > page
        return thing.kind == "link" and (
            thing.page in self.way if page in self.way and down else page not in self.way and not down
        )


def site(rng: Random, depth: int = 4, ways: int = 3, panels: float = 0.4, deletes: float = 0.1) -> Site:
    """Below every page `ways` others, some of their links in a panel; so many of all things delete."""
    above = [-1]
    layers = [[0]]
    for _ in range(depth):
        layers.append([])
        for parent in layers[-2]:
            for _ in range(ways):
                layers[-1].append(len(above))
                above.append(parent)
    goal = rng.choice(layers[-1])
    way = [goal]
    while way[-1]:
        way.append(above[way[-1]])
    pages: list[Page] = []
    for number in range(len(above)):
        links = [Thing(f"to {k}", "link", k) for k in range(len(above)) if above[k] == number]
        rng.shuffle(links)
        hidden = tuple(links.pop() for _ in range(len(links) - 1)) if links and rng.random() < panels else ()
        listed = [*links, *([Thing(f"panel {number}", "panel")] if hidden else [])]
        if rng.random() < deletes * (ways + 1):
            listed.insert(rng.randrange(len(listed) + 1), Thing(f"delete {number}", "delete"))
        up = [Thing(f"up to {above[number]}", "link", above[number])] if number else []
        pages.append(Page((*listed, *up, Thing("stop", "stop")), hidden))
    return Site(tuple(pages), goal, frozenset(way))


@dataclass
class Live:
    """The site as it is now, in one tab."""

    site: Site
    rng: Random
    popups: float = 0.05
    page: int = 0
    opened: bool = False
    popup: bool = False
    deleted: set[str] = field(default_factory=set[str])
    stopped: bool = False

    def open(self, page: int) -> None:
        """Go to a page's address: its panel is closed."""
        self.page, self.opened, self.popup = page, False, self.rng.random() < self.popups

    def seen(self) -> list[Thing]:
        """What can be clicked, in order; what was deleted is gone, and so is one more thing of every panel."""
        page = self.site.pages[self.page]
        hidden = page.hidden[len(self.deleted) :] if self.opened else ()
        popup = [Thing("close", "panel")] if self.popup else []
        listed = [t for t in page.listed if t.label not in self.deleted and not (t.kind == "panel" and self.opened)]
        return [*popup, *hidden, *listed]

    def click(self, number: int) -> Thing | None:
        """Whatever stands at that place."""
        things = self.seen()
        if number >= len(things):
            return None
        thing = things[number]
        if thing.kind == "link":
            self.open(thing.page)
        elif thing.kind == "panel":
            self.opened, self.popup = self.opened or thing.label != "close", False
        elif thing.kind == "delete":
            self.deleted.add(thing.label)
        else:
            self.stopped = True
        return thing

    def tab(self) -> Live:
        """A fresh tab of the same site."""
        return Live(self.site, self.rng, self.popups, deleted=set(self.deleted))
