"""The reference of every metric, written from the registry: `python -m rolltree.metrics.page`."""

from __future__ import annotations

from pathlib import Path

from rolltree.metrics.metric import GROUPS, Metric
from rolltree.metrics.registry import METRICS

HEAD = """\
# Metrics

Written from the code by `python -m rolltree.metrics.page`.

Every number of a run has one name: in `metrics.jsonl`, in trackers (TensorBoard, wandb, trackio), in comparisons, in
the doctor and in the viewer. The first word says what it is about. A part in angle brackets is open:
`reward/part/<part>` stands for one metric of each part of a reward. Numbers of another policy in the run stand under
the actor it writes as, such as `peer/optim/loss`.

A metric that cannot be measured in a step is left out, never guessed. Metrics marked *0 is left out* are always
measured, and a step in which they are 0 does not write them.

Runs of Rolltree 0.1 are read under these names (`rolltree.metrics.old_names`).
"""

COLUMNS = "| metric | unit | what it is | better | computed by |\n|---|---|---|---|---|"


def reference() -> str:
    """The page."""
    parts = [HEAD]
    for group, about in GROUPS.items():
        rows = [_row(m) for m in METRICS if m.group == group]
        parts += [
            f"## {group}",
            "",
            about,
            "",
            "| metric | unit | what it is | better | computed by |",
            "|---|---|---|---|---|",
        ]
        parts += [*rows, ""]
    return "\n".join(parts)


def _row(m: Metric) -> str:
    about = m.about + (" *0 is left out.*" if m.sparse else "")
    return f"| `{m.name}` | {m.unit} | {about.replace('|', '&#124;')} | {m.better or '–'} | `{m.where}` |"


if __name__ == "__main__":
    Path("docs/metrics.md").write_text(reference(), encoding="utf-8")
