"""A black-box agent against the native task: the same tools and verifiers, the same tokens, several seeds.

    python benchmarks/black_box.py [--tasks calculator lookup sql] [--seeds 5] [--decoded 8000] [--json FILE]
    python benchmarks/black_box.py --tasks lookup --sides native --first 100 --seeds 2 --decoded 32000

The agents (`black_box_agents.py`) are programs of about 20 lines that speak OpenAI. With the native task's streams of
randomness the two runs would be the same to the last bit, which `tests/gateway/test_agents.py` holds; here each side
draws its own, so that what is compared is what a user gets. Runs that stand in --out are not made again.

A regime in which neither side learns compares nothing: its row says `learned: false`. The second form looks for one in
which the native side learns, on seeds of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import save

from rolltree.compare.stats.paired import t_quantile
from rolltree.gateway.agents.task import AgentTask
from rolltree.task.nano.calculator import Calculator
from rolltree.task.nano.lookup import Lookup
from rolltree.task.nano.sql import Session, Sql
from rolltree.task.protocol import Item, Split, Verdict
from rolltree.training.start import train

SIDES = ("native", "agent")
POLICIES = {"lookup": "studies/policies/lookup"}
"""Task -> the policy it begins from, where the embedded one cannot learn: it guesses between the facts of a look-up.
`python -m studies.warm lookup` makes one that has learned to read them, and then to err."""
AGENTS = str(Path(__file__).with_name("black_box_agents.py"))


class FinalSql(Sql):
    """Judges a query that is handed in, where the native task judges the one that was submitted in the rollout."""

    async def verify(self, item: Item, state: Session, text: str) -> Verdict:
        """A rollout whose agent was cut off before the end hands in nothing."""
        return await super().verify(item, Session(text, bool(text)), text)


@dataclass(frozen=True)
class Row:
    """One task: pass@1 on held-out items after training, over the seeds, and before it."""

    task: str
    decoded: int
    before: float
    learned: bool
    """Whether either side ends above where it began by more than its interval of 95 %; else nothing is compared."""
    native: list[float]
    agent: list[float]
    difference: float
    """Agent less native."""
    half_width: float
    """Of its interval of 95 % over the seeds (Welch)."""
    within_noise: bool


def native_task(name: str) -> Any:
    """The task of this package."""
    return {"calculator": Calculator(fail_rate=0.0), "lookup": Lookup(level=1), "sql": Sql(level=2)}[name]


class Published:
    """A task that puts what the agent's tools need of each item into a folder, as the item is asked."""

    def __init__(self, inner: Any, folder: Path) -> None:
        self._inner, self._folder = inner, folder

    def items(self, split: Split, seed: int = 0) -> Iterator[Item]:
        """The task's own."""
        for item in self._inner.items(split, seed):
            known = item.meta.get("facts") or {k: item.meta.get(k) for k in ("table", "columns", "rows")}
            (self._folder / item.id).write_text(json.dumps(known))
            yield item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def agent_task(name: str, folder: Path) -> AgentTask:
    """The same task as an agent's."""
    os.environ["BLACK_BOX_DATA"] = str(folder)
    inner: Any = Published(FinalSql(level=2) if name == "sql" else native_task(name), folder)
    return AgentTask(f"{AGENTS}:{name}", task=inner)


def measured(task: Any, policy: str, seed: int, out: Path, decoded: int) -> tuple[float, float]:
    """pass@1 before and after a run."""
    done = out / "result.json"
    if not done.exists():
        result = train(
            "grpo", policy, task, out=out, seed=seed, decoded=decoded, steps=10_000, prompts=8, eval_every=10_000,
            end_items=96, eval_samples=2, checkpoint_every=0, forests_every=0, quiet=True,
        )  # fmt: skip
        evals = [line["eval/pass@1"] for line in result.metrics if line["kind"] == "eval"]
        done.write_text(json.dumps([evals[0], evals[-1]]))
    before, after = json.loads(done.read_text())
    return before, after


def row(name: str, asked: argparse.Namespace) -> Row | None:
    """Both sides of a task; None where one was not asked for, or there is one seed."""
    rates: dict[str, list[tuple[float, float]]] = {side: [] for side in asked.sides}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(asked.first, asked.first + asked.seeds):
            for side, told in rates.items():
                task = native_task(name) if side == "native" else agent_task(name, Path(folder))
                done = asked.out / f"{name}-{side}-{seed}-{asked.decoded}"
                told.append(measured(task, POLICIES.get(name, "nano"), seed, done, asked.decoded))
                print(name, side, seed, *told[-1], flush=True)
    if len(rates) < 2 or asked.seeds < 2:
        return None
    native, agents = ([after for _, after in rates[side]] for side in SIDES)
    difference = statistics.mean(agents) - statistics.mean(native)
    error = np.sqrt((statistics.variance(native) + statistics.variance(agents)) / asked.seeds)
    half = float(error * t_quantile(0.975, 2 * asked.seeds - 2))
    before = statistics.mean(b for side in rates.values() for b, _ in side)
    learned = any(_learned(side) for side in rates.values())
    return Row(name, asked.decoded, before, learned, native, agents, difference, half, abs(difference) <= half)


def _learned(rates: list[tuple[float, float]]) -> bool:
    gains = [after - before for before, after in rates]
    error = statistics.stdev(gains) / np.sqrt(len(gains))
    return bool(statistics.mean(gains) > error * t_quantile(0.975, len(gains) - 1))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=["calculator", "lookup", "sql"])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--decoded", type=int, default=8_000)
    parser.add_argument("--out", type=Path, default=Path("runs/black_box"))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows = [made for name in asked.tasks if (made := row(name, asked)) is not None]
    for one in rows:
        print(json.dumps(asdict(one)))
    if asked.json:
        save(asked.json, rows)


if __name__ == "__main__":
    main()
