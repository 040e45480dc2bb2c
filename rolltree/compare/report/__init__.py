"""Reports: a page of verdicts, curves and tables, as one HTML file or in the terminal."""

from rolltree.compare.report.branch import ReportBranch, ReportTree, chosen_tree
from rolltree.compare.report.canvas import draw, sparkline
from rolltree.compare.report.html import html, write_html
from rolltree.compare.report.page import Chart, Page, PlotSeries, ReportFinding, ReportTable, duration, shown, versions
from rolltree.compare.report.terminal import print_page

__all__ = [
    "Chart",
    "Page",
    "PlotSeries",
    "ReportBranch",
    "ReportFinding",
    "ReportTable",
    "ReportTree",
    "chosen_tree",
    "draw",
    "duration",
    "html",
    "print_page",
    "shown",
    "sparkline",
    "versions",
    "write_html",
]
