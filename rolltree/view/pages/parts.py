"""What pages are made of: tables, token strips, icicles, legends and sentences. All text goes out as text."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nicegui import ui
from nicegui.element import Element
from nicegui.elements.mixins.text_element import TextElement
from nicegui.events import GenericEventArguments

from rolltree.analysis.line_colours import LINES, task_colour
from rolltree.view.colours import COLOURINGS, Scale
from rolltree.view.icicle import MARKS, Icicle
from rolltree.view.runs import Line, smoothed, thinned
from rolltree.view.strip import Strip

Pick = Callable[[Any], Any]
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_INK = "#7d858c"


@dataclass(frozen=True)
class Cell:
    """A text of a table, and where it leads."""

    text: str
    href: str = ""
    kind: str = ""
    """How it looks: `badge running`, `badge grave`."""
    title: str = ""
    """What is said of it where one points at it."""
    colour: str = ""
    """What it is known by in figures: a mark before the text."""


@dataclass(frozen=True)
class Column:
    """A column's head; `kind` words sets it flush left."""

    text: str
    kind: str = ""
    href: str = ""
    sorted: str = ""
    title: str = ""
    """What is said of it where one points at it."""


class PageTable(Element, component="../assets/grid.js"):
    """A table; the first column's links are what j and k move through."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]], name: str = "table") -> None:
        super().__init__()
        self._props["name"] = name
        self._set(columns, rows)

    def show(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        """Other texts in the same table."""
        self._set(columns, rows)
        self.update()

    def _set(self, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
        self._props["columns"] = [asdict(c) for c in columns]
        self._props["rows"] = [[asdict(c) for c in row] for row in rows]


class PageSection:
    """A part of a page that is drawn again only when what it shows has changed, and then at one go."""

    def __init__(self) -> None:
        self.place = ui.element("div")
        self._shown: Any = None

    def show(self, data: Any, draw: Callable[[], None]) -> bool:
        """Draw what stands for some data, unless it is drawn already; `draw` waits for nothing."""
        if self._shown is not None and self._shown == (data,):
            return False
        self._shown = (data,)
        self.place.clear()
        with self.place:
            draw()
        return True


class Tokens(Element, component="../assets/tokens.js"):
    """The tokens of a path with what is known of each on hover."""

    def __init__(self, strip: Strip, chosen: int | None, pick: Pick, pick_token: Pick | None = None) -> None:
        super().__init__()
        self._props["runs"] = [asdict(run) for run in strip.runs]
        self._props["palette"], self._props["inks"] = list(strip.scale.palette), list(strip.scale.inks)
        self._props["chosen"] = -1 if chosen is None else chosen
        self._props["picks"] = pick_token is not None
        self.on("pick", lambda e: pick(_first(e)))
        if pick_token is not None:
            self.on("token", lambda e: pick_token(_first(e)))


class Picture(Element, component="../assets/icicle.js"):
    """A tree as an icicle on a canvas."""

    def __init__(self, drawn: Icicle, selected: str, pick: Pick) -> None:
        super().__init__()
        self._props["drawing"] = drawing(drawn, selected)
        self.on("pick", lambda e: pick(_first(e)))

    def show(self, drawn: Icicle, selected: str) -> None:
        """Draw another state of the tree in place."""
        self._props["drawing"] = drawing(drawn, selected)
        self.update()


def _first(event: GenericEventArguments) -> Any:
    return event.args[0] if isinstance(event.args, list) else event.args


class Words(TextElement):
    """Text within a line."""

    def __init__(self, text: str) -> None:
        super().__init__(tag="span", text=text)


def plain(text: str) -> str:
    """Text as Plotly shows it letter by letter: Plotly reads labels and hovers as markup otherwise."""
    return html.escape(text, quote=False).replace("\n", "⏎")


def drawing(drawn: Icicle, selected: str) -> dict[str, Any]:
    """A drawn tree as the canvas takes it."""
    kept = ("key", "label", "lines", "leaves", "shade", "marks", "level", "at")
    about = f"a tree of {drawn.nodes:,} nodes and {drawn.leaves:,} leaves; the arrow keys move through it"
    return {
        "rects": [{name: getattr(r, name) for name in kept} for r in drawn.rects], "levels": drawn.levels,
        "leaves": drawn.leaves, "selected": selected, "palette": list(drawn.scale.palette),
        "inks": list(drawn.scale.inks), "about": about,
    }  # fmt: skip


def line_styles(tasks: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Colour and dash of each run (run → task): the task's where runs have several tasks, else one of its own."""
    if len(set(tasks.values())) < 2:
        return {run: {"color": LINES[i % len(LINES)], "dash": "solid"} for i, run in enumerate(tasks)}
    met: dict[str, int] = {}
    out: dict[str, dict[str, str]] = {}
    for run, task in tasks.items():
        met[task] = met.get(task, -1) + 1
        out[run] = {"color": task_colour(task), "dash": DASHES[met[task] % len(DASHES)]}
    return out


def curve_figure(
    title: str, axis: str, lines: Sequence[Line], tasks: Mapping[str, str], smooth: int = 1
) -> dict[str, Any]:  # fmt: skip
    """One metric of several runs (run → task) as a Plotly figure that reads in the light and in the dark.

    Intervals are bands; a curve that is smoothed stands over the faint values it was made of.
    """
    data: list[dict[str, Any]] = []
    styles = line_styles(tasks)
    for whole in lines:
        line, drawn = thinned(whole), thinned(smoothed(whole, smooth))
        colour = styles[line.run]["color"]
        own = {"type": "scatter", "x": line.x, "name": plain(line.run), "legendgroup": plain(line.run)}
        quiet = {**own, "hoverinfo": "skip", "showlegend": False}
        if line.low:
            data.append({
                **quiet, "x": [*line.x, *reversed(line.x)], "y": [*line.high, *reversed(line.low)], "fill": "toself",
                "fillcolor": colour, "opacity": 0.16, "mode": "none",
            })  # fmt: skip
        ends = [f" ({low:.3g}–{high:.3g})" for low, high in zip(line.low, line.high, strict=True)]
        is_smooth = smooth > 1 and len(whole.y) > 2
        if is_smooth:
            data.append({**quiet, "y": line.y, "mode": "lines", "opacity": 0.3, "line": {"color": colour, "width": 1}})
        data.append({
            **own, "mode": "lines+markers" if len(line.x) < 60 else "lines", "x": drawn.x, "y": drawn.y,
            "line": {**styles[line.run], "width": 2},
            "customdata": ends if line.low and not is_smooth else [""] * len(drawn.x),
            "hovertemplate": f"%{{y:.4g}}%{{customdata}} at {plain(axis)} %{{x:,}}<extra>{plain(line.run)}</extra>",
        })  # fmt: skip
    grid = {"gridcolor": "rgba(130,135,140,0.22)", "zeroline": False, "linecolor": _INK}
    layout = {
        "title": {"text": plain(title), "font": {"size": 14}, "x": 0.02}, "font": {"color": _INK, "size": 11},
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "showlegend": len(tasks) > 1,
        "legend": {"orientation": "h", "y": -0.3}, "margin": {"l": 48, "r": 12, "t": 36, "b": 40},
        "xaxis": {**grid, "title": {"text": plain(axis), "standoff": 4}}, "yaxis": grid, "uirevision": "kept",
    }  # fmt: skip
    return {"data": data, "layout": layout, "config": {"displayModeBar": False}}


def trouble(sentence: str) -> None:
    """What cannot be shown, and the way out."""
    ui.label(sentence).classes("trouble").props('role="alert"')


def says(sentence: str) -> None:
    """Something to know."""
    ui.label(sentence).classes("says")


def heading(text: str, level: int = 2, *, live: bool = False) -> None:
    """A heading; a `live` one is read out when it changes."""
    with ui.element(f"h{level}") as made:
        ui.label(text)
    if live:
        made.props('aria-live="polite"')


def marks_legend(drawn: Icicle) -> None:
    """What the marks mean that are on some rectangle."""
    here = {mark for rect in drawn.rects for mark in rect.marks}
    if here:
        with ui.element("div").classes("legend marks"):
            for mark, (sign, words) in MARKS.items():
                if mark in here:
                    ui.label(f"{sign} {words}")


def legend(scale: Scale, note: str = "") -> None:
    """What the colours mean."""
    with ui.element("div").classes("legend"):
        ui.label(COLOURINGS[scale.colouring])
        if scale.names:
            for name, colour in zip(scale.names, scale.palette, strict=True):
                with ui.element("span"):
                    ui.element("span").classes("box").style(f"background:{colour}")
                    Words(name)
        else:
            ui.label(number(scale.low))
            colours = ",".join(scale.palette[::4])
            ui.element("div").classes("ramp").style(f"background:linear-gradient(90deg,{colours})")
            ui.label(number(scale.high))
        if note:
            ui.label(note)


def number(value: float) -> str:
    """A number in a table; a dash where there is none."""
    if not math.isfinite(value):
        return "–"
    value += 0.0  # no minus before a zero
    return f"{value:,.0f}" if value == round(value) and abs(value) >= 10 else f"{value:.4g}"


def facts(pairs: Sequence[tuple[str, str]], explain: Callable[[str], str] = lambda name: "") -> None:
    """Names and values, one under the other; `explain` says of a name what it is, where one points at it."""
    with ui.element("dl").classes("facts"):
        for name, value in pairs:
            with ui.element("dt"):
                said = explain(name)
                label = ui.label(name)
                if said:
                    label.props["title"] = said
            with ui.element("dd"):
                ui.label(value)


def button(text: str, act: Callable[[], Any], *, on: bool = False, name: str = "") -> Element:
    """A plain button."""
    made = ui.element("button").classes("plain" + (" on" if on else "") + (f" {name}" if name else ""))
    with made:
        Words(text)
    made.on("click", lambda _: act())
    return made
