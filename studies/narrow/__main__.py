"""Both slices, and the page: `python -m studies.narrow`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from rolltree.compare.stats.paired import t_interval
from studies.command import run_study
from studies.narrow.cache import BY_CATEGORY, EXACT, Worth, exact_and_young, one_for_all, played, traffic
from studies.narrow.rewiring import Rewiring, compared


@dataclass(frozen=True)
class NarrowSettings:
    """Where the result goes."""

    out: Path = Path("docs/measured")
    """Folder for narrow.md."""
    seeds: int = 3
    """Seeds of each; a minute of processor time."""


def main(settings: NarrowSettings) -> None:
    """Measure and write."""
    torch.set_num_threads(1)
    parts = ["# Two narrow slices", "Regenerate with `python -m studies.narrow`. Means with 95 % t intervals over "
             f"{settings.seeds} seeds.", *rewiring(settings.seeds), *caching(settings.seeds)]  # fmt: skip
    (settings.out / "narrow.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"wrote {settings.out / 'narrow.md'}")


def rewiring(seeds: int) -> list[str]:
    """Losses by how far the routers were disturbed."""
    rows: list[str] = []
    for noise in (0.0, 1.0, 2.0, 4.0):
        for steps in (3, 15):
            found = [compared(seed, noise, Rewiring(steps=steps)) for seed in range(seeds)]
            cells = [
                _told([r.plain for r in found]), _told([r.adapted - r.plain for r in found], "+.3f"),
                _told([r.random - r.plain for r in found], "+.3f"), _told([r.rerouted for r in found], ".0%"),
            ]  # fmt: skip
            rows.append(f"| {noise:g} | {steps} | " + " | ".join(cells) + " |")
            print(rows[-1], flush=True)
    return [
        "## Rewiring experts while decoding (arXiv 2510.14853)",
        "A policy of two layers with eight experts, two of them for a token, learns two synthetic languages in 250 "
        "steps (`studies/narrow/rewiring.py`; OLMoE's architecture). Noise is then added to the weights of its "
        "routers, in units of their spread. Each text adapts one vector a layer on its first half; the loss of the "
        "second half is judged. Rate and steps were chosen on a seed that is not judged.",
        "| noise | steps | loss as it is | adapted, difference | random vector of that length, difference | tokens "
        "rerouted |\n|---:|---:|---:|---:|---:|---:|\n" + "\n".join(rows),
        "A vector that stands for a whole request can undo only what is the same for all its tokens. Where routers "
        "are undisturbed there is nothing to gain, and it costs. Logged log-probs belong to the rewired policy, so "
        "rollouts that are trained on need its vectors too; the engine does not take them. Keys and values are "
        "computed anew after each change. No model of a size that people use was tried.",
    ]  # fmt: skip


def caching(seeds: int) -> list[str]:
    """What each set of rules did with the same calls."""
    worth: dict[str, list[Worth]] = {}
    for seed in range(seeds):
        calls = traffic(seed)
        mine = played(calls, BY_CATEGORY, seed)
        for name, one in {
            "a rule for each category": mine, "the best single rule with as many hits": one_for_all(calls, mine.hits),
            "the same text only, for ever": played(calls, EXACT, seed),
            "the same text only, prices for 30 s": played(calls, exact_and_young(), seed),
        }.items():  # fmt: skip
            worth.setdefault(name, []).append(one)
    rows = [
        f"| {name} | {_told([w.hits for w in found], '.1%')} | {_told([w.wrong for w in found], '.1%')} | "
        f"{_told([w.wrong / w.hits for w in found], '.1%')} | {_told([w.audited for w in found], '.1%')} | "
        f"{_told([w.saved for w in found], '.0%')} |"
        for name, found in worth.items()
    ]
    return [
        "## A cache that knows categories (arXiv 2510.26835)",
        "3,000 synthetic calls a seed: tests of programs (dense: other answers lie close by), judged prose (sparse: "
        "the same question in other words), prices (answers change every 300 s). A call takes 1 s, a look-up 2 ms "
        "(`studies/narrow/cache.py`). Answers belong to a version of who gave them. One hit in twenty is asked again: "
        "what these audits say stands beside the truth. Rules were chosen on a seed that is not judged.",
        "| rules | hits | wrong answers | wrong among hits | wrong by audits | seconds saved |\n"
        "|---|---:|---:|---:|---:|---:|\n" + "\n".join(rows),
        "The categories were made to differ, and a category is known without error; real embeddings are not as tidy. "
        "The judges' own cache (`rolltree.generate.judge.cached`) stays exact: a false verdict is trained on. An exact "
        "cache is wrong too where answers change and their age is not asked.",
    ]


def _told(values: Sequence[float], how: str = ".3f") -> str:
    found = t_interval(values)
    return f"{found.estimate:{how}} ({found.low:{how}} to {found.high:{how}})"


if __name__ == "__main__":
    raise SystemExit(run_study("narrow", NarrowSettings, main, __doc__))
