"""The reference of every finding, written from the detectors themselves: `python -m rolltree.doctor.page`."""

from __future__ import annotations

from pathlib import Path

from rolltree.doctor.detector import Detector, detectors

HEAD = """\
# Findings of the doctor

Written from the code by `python -m rolltree.doctor.page`; [how to use the doctor](howto/doctor.md).

Every threshold is a knob: `--set NAME.KNOB=VALUE`. Means are over the last `window` steps, or over all where there are
fewer; a finding is a *warning* beyond the first threshold, *critical* beyond `worse`, and a *note* when it stood and is
over. Detectors marked *live* are watched during training.
"""


def reference() -> str:
    """The page."""
    rows = ["| finding | what is wrong |", "|---|---|"]
    rows += [f"| [{d.name}](#{d.name}) | {d.about} |" for d in detectors().values()]
    return "\n".join([HEAD, *rows, "", *(_section(d) for d in detectors().values())])


def _section(d: Detector) -> str:
    numbers = ", ".join(f"`{name}`" for name in d.reads)
    lines = [f"## {d.name}", "", d.about, ""]
    if d.why:
        lines += [d.why, ""]
    lines += [f"Reads {numbers}{' · live' if d.live else ' · saved forests only'}.", ""]
    lines += ["| knob | default | meaning |", "|---|---|---|"]
    lines += [f"| `{name}` | {value} | {d.knobs[name]} |" for name, value in d.thresholds.items()]
    return "\n".join([*lines, "", "Suggested fixes:", "", *(f"- {fix}" for fix in d.fixes), ""])


if __name__ == "__main__":
    Path("docs/doctor.md").write_text(reference(), encoding="utf-8")
