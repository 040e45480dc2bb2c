"""The page is one file, holds what it was given, and lets nothing in it become markup."""

import gzip
import json
import re
from base64 import b64decode
from html.parser import HTMLParser

from rolltree.compare.report import Chart, Page, PlotSeries, ReportFinding, ReportTable, html, write_html

EVIL = "<script>alert(1)</script>&\"'"


class Outline(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.text = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ("src", "href")]

    def handle_data(self, data):
        self.text.append(data)


def page(text="grpo"):
    line = PlotSeries(text, [0, 1e5], [0.1, 0.5], [0.05, float("-inf")], [0.2, float("inf")], [([0, 1], [0.1, 0.4])])
    return Page(
        title=text, lead=text, facts=[(text, text)], findings=[ReportFinding("holds", f"holds: {text}")],
        charts=[Chart(text, text, text, [line], percent=True, target=0.4, note=text)],
        grids=[ReportTable(text, [text, text], [[text, text]], text)], commands=[(text, text)], notes=[text],
        versions=[(text, text)],
    )  # fmt: skip


def test_text_never_becomes_markup():
    made = html(page(EVIL))
    assert "alert(1)</script>" not in made
    assert Outline(made).tags.count("script") == html(page()).count("<script")
    assert EVIL in "".join(Outline(made).text)


def test_nothing_is_fetched():
    made = html(page())
    assert Outline(made).links == []
    assert "default-src 'none'" in made
    assert not re.search(r"@import|url\(", made.split("</style>")[0])


def test_charts_carry_their_numbers_and_gaps_for_what_is_infinite():
    made = html(page())
    data = json.loads(re.search(r'id="charts">(.*?)</script>', made)[1])
    assert data[0]["series"][0]["y"] == [0.1, 0.5]
    assert data[0]["series"][0]["low"] == [0.05, None]
    assert data[0]["target"] == 0.4


def test_the_plotting_library_is_inside_and_small(tmp_path):
    path = write_html(page(), tmp_path / "deep" / "report.html")
    made = path.read_text()
    packed = re.search(r'id="plotly">(.*?)</script>', made)[1]
    assert b"Plotly" in gzip.decompress(b64decode(packed))
    assert path.stat().st_size < 5_000_000


def test_a_page_without_charts_needs_no_library():
    assert len(html(Page("t", "l"))) < 50_000


def test_the_same_page_is_the_same_file():
    assert html(page()) == html(page())
