"""Four published systems on the clock, each against what it is held against: `python -m studies.clock.systems`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from studies.clock import rollart
from studies.clock.hybrid import flow
from studies.clock.serving import elastic, pdserve
from studies.clock.serving.ratio import Ratio
from studies.clock.serving.serve import LIMITS
from studies.command import run_study

COMMAND = "python -m studies.clock.systems"


@dataclass(frozen=True)
class System:
    """A system, what its paper says, what stands behind the numbers here, and how they are made."""

    title: str
    published: str
    assumed: str
    came_out: str
    ratios: Callable[[], Iterable[Ratio]]


SYSTEMS: Mapping[str, System] = {
    "pd_serve": System(
        "P/D-Serve (arXiv 2408.08147)",
        "60 % more throughput end to end, 42 % more first tokens in time, transfers 46 % shorter, 6.7 times the "
        "throughput of aggregated serving.",
        f"Requests of four scenarios in bursts (a fifth of the time at four times the rate). In time: a first token "
        f"within {LIMITS.first:g} s and {1000 * LIMITS.token:g} ms for each further one. A rate is carried where "
        f"{pdserve.ENOUGH:.0%} are in time. Instances keep two prefixes. A request that can no longer be in time is "
        "given up before it is prefilled, whoever forwards. Engines that do both prefill at once what comes, and do "
        "not decode meanwhile: chunks of a prefill beside decoding are not modelled, and they narrow this gap.",
        "Nothing like 6.7 times. Pools apart win where the limit of a token is strict, because no prefill interrupts a "
        "step, and lose where it is loose, because each pool has idle time of its own. Queues by old reports cost more "
        "the older they are, as the paper says; a gateway that adds what it has sent since gets back most of it. A "
        "small gain is left without any delay, since a queue's length is not its work. One buffer saves more than the "
        "paper's 46 % under these costs of a message.",
        pdserve.ratios,
    ),
    "elastic_moe": System(
        "ElasticMoE (arXiv 2510.02613)",
        "Up to 9 times lower latency of growing, up to twice the throughput while it grows.",
        f"{elastic.START:g} s until a new process serves; {elastic.STANDBY:g} s for one that stands ready, beside "
        f"{elastic.EXPERTS} experts in {elastic.LAYERS} layers that are placed anew with the fewest moves, and "
        f"{elastic.SWITCH:g} s of pause for those that serve. The ratio of latencies follows from these. A tide of "
        "four times the quiet rate for 90 of 240 s. Who restarts loses what is under way and grows to all there is at "
        f"once; replicas come in steps of {elastic.UNIT} devices. On standby their processes stand ready and get "
        "weights from the others as well.",
        "Over replicas that start from nothing, two to three times as many requests are in time from 8 devices on, at "
        "0.7 to 1.1 times the device-seconds, and no request is lost or begun anew. All of that is the standby: over "
        "replicas that have it too, elastic is behind at 8 devices and level from 64 on. Between 2 and 6 devices no "
        f"replica of {elastic.UNIT} fits, so replicas are no growth there. Who restarts to grow is still down when the "
        "tide is over. The ratio of latencies is assumed, not found.",
        elastic.ratios,
    ),
    "rollart": System(
        "RollArt (arXiv 2512.22560)",
        "Affinity 1.12 to 1.68 times at equal cost; called verifiers halve a rollout (158 to 77 s) and use 88 % of "
        "what they take instead of 6 %; 67 to 78 % of transfers hidden, steps 1.10 to 1.16 times faster; 2.05 times "
        "synchronous training and 1.35 times one step ahead in all.",
        "Half of the prompts write 3,000 tokens in 4 turns, half read 3,000 tokens after each of 7 answers and write "
        "300 in all. Engines that prefill fast: 40,000 tokens a second and steps of 30 ms; that decode fast: 10,000 "
        "and 15 ms; at one price. Answers take 2 s, a verifier 1 s. Weights take 20 s to move where hiding is "
        "compared. The schedule keeps what is stopped and drops nothing.",
        "Affinity is worth more than the paper's 1.12 to 1.68 over engines of one kind that suit half of the work, and "
        "within it over the better of the two. Over any engine that is free it is worth as much: free engines of the "
        "wrong kind are taken at once. Hidden transfers save less here than 1.10 to 1.16: the trainer waits for its "
        "own push, and a step is long beside it.",
        rollart.ratios,
    ),
    "hybridflow": System(
        "HybridFlow (arXiv 2409.19256)",
        "1.53 to 20.57 times the throughput of systems before it.",
        "An iteration of PPO with four models of 7 billion parameters: the slowest pool of each stage, added up. "
        "Placements and layouts are chosen on one batch of lengths and judged on others. The others are reconstructed "
        "and choose how many devices share a generating step where their way allows it. What they lose by their "
        "kernels and their controllers is not modelled.",
        "The placement found is all models together at every size, and the whole gain is over a pool for each: 1.3 to "
        "1.4, below the paper's least figure. Over the best of the fixed ways it is less than 0.5 %. The longest "
        "rollout bounds an iteration, so where weights come from and how they are grouped is nothing beside it; "
        "strided groups receive 10 to 20 % fewer weights and hold nothing twice.",
        flow.ratios,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class SystemSettings:
    """Where the result goes."""

    out: Path = Path("docs/measured")
    """Folder for systems.md with its numbers."""


def main(settings: SystemSettings) -> None:
    """Everything; half an hour of processor time."""
    found: dict[str, list[Ratio]] = {}
    for name, system in SYSTEMS.items():
        found[name] = []
        for ratio in system.ratios():
            print(f"{name}: {ratio.what} ({ratio.where}): {ratio}", flush=True)
            found[name].append(ratio)
    notes = {"pd_serve": pdserve.rule(), "rollart": rollart.use()}
    print(f"wrote {write(settings.out, found, notes)}")


def write(folder: Path, found: Mapping[str, Sequence[Ratio]], notes: Mapping[str, str]) -> Path:
    """`systems.md` and `systems.json`."""
    told = {"command": COMMAND, "notes": dict(notes), "ratios": {k: [asdict(r) for r in v] for k, v in found.items()}}
    (folder / "systems.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    path = folder / "systems.md"
    path.write_text(page(found, notes), encoding="utf-8")
    return path


def read(path: Path) -> tuple[dict[str, list[Ratio]], dict[str, str]]:
    """The numbers behind a page."""
    told = json.loads(path.read_text(encoding="utf-8"))
    return {k: [Ratio(**r) for r in v] for k, v in told["ratios"].items()}, told["notes"]


def page(found: Mapping[str, Sequence[Ratio]], notes: Mapping[str, str]) -> str:
    """A section for each system."""
    parts = [
        "# Serving systems in simulated time",
        f"Regenerate with `{COMMAND}`; numbers in `systems.json`. Each system is a small composition of the clock's "
        "engines, pools, links and schedules ([how the clock counts](scheduling.md#assumptions)). Ratios are paired by "
        "seed, geometric means with 95 % t intervals; where there is no interval the number has no chance in it. They "
        "hold under the assumptions stated and for no machine in particular.",
    ]
    for name, ratios in found.items():
        system = SYSTEMS[name]
        rows = [f"| {r.what} | {r.where} | {r} | {r.seeds} |" for r in ratios]
        parts += [
            f"## {system.title}", f"**Published.** {system.published}", f"**Assumed here.** {system.assumed}",
            f"**What came out.** {system.came_out}",
            "\n".join(["| ratio | where | value | seeds |", "|---|---|---:|---:|", *rows]),
        ]  # fmt: skip
        if name in notes:
            parts.append(notes[name])
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    raise SystemExit(run_study("clock.systems", SystemSettings, main, __doc__))
