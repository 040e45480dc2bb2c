"""Published systems that are no recipe: they train nothing, but they claim something, and the claim is a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rolltree.recipe.recipe import Card, Evidence


@dataclass(frozen=True, slots=True)
class SystemCard:
    """A system's card, and the page that says where it stands."""

    card: Card
    page: str
    """From the folder of recipes' and measured pages, as "../howto/speculate.md"."""


def _system(
    name: str, title: str, paper: str, year: int, claim: str, stages: tuple[str, ...], page: str, evidence: Evidence
) -> SystemCard:
    return SystemCard(Card(name, title, paper, year, claim, stages, evidence=evidence), page)


_CLOCK, _SPECULATE, _MEASURED = "../measured/systems.md", "../howto/speculate.md", "../measured/narrow.md"
_ALL = (
    _system(
        "pd_serve", "P/D-Serve", "2408.08147", 2024,
        "60 % more throughput, 42 % more first tokens in time, 6.7 times the throughput of aggregated serving",
        ("generate",), _CLOCK,
        Evidence("first tokens in time", "queues by reports of a second's age", least=0.02, seeds=5,
                 check="studies.clock.checks:pd_serve"),
    ),
    _system(
        "elastic_moe", "ElasticMoE", "2510.02613", 2025,
        "up to 9 times lower latency of growing, up to twice the throughput while it grows",
        ("generate",), _CLOCK,
        Evidence("requests in time over a tide", "whole replicas that stand ready too", least=0.02, seeds=5,
                 check="studies.clock.checks:elastic_moe"),
    ),
    _system(
        "rollart", "RollArt", "2512.22560", 2025,
        "affinity of work and hardware makes rollouts 1.12 to 1.68 times faster at equal cost",
        ("generate", "control"), _CLOCK,
        Evidence("rollouts a second and device", "the same engines, whichever is free", least=0.02, seeds=5,
                 check="studies.clock.checks:rollart"),
    ),
    _system(
        "hybridflow", "HybridFlow", "2409.19256", 2024,
        "1.53 to 20.57 times the throughput of systems with fixed placements",
        ("generate",), _CLOCK,
        Evidence("iterations a minute", "the best of three fixed placements", least=0.01, seeds=5,
                 check="studies.clock.checks:hybridflow"),
    ),
    _system(
        "delayed_trees", "Delayed tree expansion", "2602.16994", 2026,
        "one trunk that branches at its end keeps more guesses than paths that branch at once",
        ("generate",), _SPECULATE,
        Evidence("tokens per request and pass", "as many guesses in paths from the first token on", seeds=6,
                 check="studies.speculation:delayed_trees"),
    ),
    _system(
        "goose", "Goose", "2604.02047", 2026,
        "a spine of copies with branches of adjacent tokens keeps more guesses than copies alone",
        ("generate",), _SPECULATE,
        Evidence("tokens per request and pass", "a balanced tree or copies alone, as many guesses", seeds=6,
                 check="studies.speculation:goose"),
    ),
    _system(
        "tlt", "TLT", "2511.16665", 2025,
        "a drafter trained on the rollouts while the engine is idle makes them 1.7 to 2.1 times faster",
        ("generate",), _SPECULATE,
        Evidence("tokens per request and pass", "as many guesses from earlier texts", seeds=6,
                 check="studies.speculation:tlt"),
    ),
    _system(
        "jet_rl", "Jet-RL", "2601.14243", 2026,
        "the same rounding in rollout and training leaves no mismatch where different ones make training collapse",
        ("generate", "objective"), "../howto/engines.md#coarse-weights",
        Evidence("pass@1 after training", "rounded in the rollout alone", "higher", 0.02, seeds=8,
                 check="studies.precision:jet_rl"),
    ),
    _system(
        "rewiring", "Rewiring experts", "2510.14853", 2025,
        "gradient steps on additive router logits from the text so far make what follows likelier",
        ("generate",), _MEASURED,
        Evidence("loss of the continuation, nats", "the router as it is", "lower", 0.005, seeds=6,
                 check="studies.narrow.rewiring:check"),
    ),
    _system(
        "category_cache", "Category cache", "2510.26835", 2025,
        "a threshold, an age and a quota for each category make fewer false hits than one for all",
        ("generate", "replay"), _MEASURED,
        Evidence("wrong answers, share of calls", "the best single threshold with as many hits", "lower", 0.005,
                 seeds=5, check="studies.narrow.cache:check"),
    ),
)  # fmt: skip

SYSTEMS: Mapping[str, SystemCard] = {one.card.name: one for one in _ALL}
"""By name."""
