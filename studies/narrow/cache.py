"""A cache for answers of judges and tools that knows categories (arXiv 2510.26835), and what its hits are worth.

How alike two questions must be, how long an answer holds and how many are kept depends on the category. Answers belong
to a version of who gave them, and a share of the hits is asked again, so that the error of the cache is measured while
it works. Answers of a policy that is trained are never kept: they are samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from rolltree.errors import RolltreeError
from studies.lab.claim import Measured

Vector = NDArray[np.float64]


class CacheError(RolltreeError, ValueError):
    """A category without a rule, or a rule that makes no sense."""


@dataclass(frozen=True, slots=True)
class CacheRule:
    """What holds for one category."""

    alike: float
    """Least cosine of a hit. Above 1 only the same text is one: exact."""
    age: float = np.inf
    """Seconds that an answer holds."""
    quota: int = 1000
    """Answers that are kept; the one that was not used for longest goes. 0 = nothing is kept."""

    def __post_init__(self) -> None:
        if self.age <= 0 or self.quota < 0 or self.alike <= 0:
            raise CacheError(f"{self} keeps nothing that could be found; give an age and a likeness above 0")


@dataclass(slots=True)
class _Kept:
    text: str
    vector: Vector
    answer: object
    version: str
    since: float
    used: float


@dataclass(slots=True)
class CategoryCache:
    """Looked up by brute force: some thousand answers need no index."""

    rules: Mapping[str, CacheRule]
    audit: float = 0.05
    """Share of the hits that are answered anew all the same, which measures the error."""
    seed: int = 0
    hits: int = 0
    asked: int = 0
    audited: int = 0
    wrong: int = 0
    """Audited hits whose answer had another content."""
    _kept: dict[str, list[_Kept]] = field(default_factory=dict[str, list[_Kept]])
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def rule(self, category: str) -> CacheRule:
        """The category's."""
        if category not in self.rules:
            raise CacheError(f"no rule for the category {category!r}; add one to {', '.join(self.rules)}")
        return self.rules[category]

    def find(self, category: str, text: str, vector: Vector, version: str, now: float) -> object | None:
        """A kept answer of this version to a question that is alike enough and young enough; None = ask."""
        rule = self.rule(category)
        self.asked += 1
        kept = [k for k in self._kept.get(category, []) if k.version == version and now - k.since <= rule.age]
        self._kept[category] = kept
        if not kept:
            return None
        near = np.array([k.vector for k in kept]) @ vector
        same = np.array([k.text == text for k in kept])
        best = int(np.argmax(np.where(same, 2.0, near)))
        if not same[best] and near[best] < rule.alike:
            return None
        kept[best].used = now
        self.hits += 1
        return kept[best].answer

    def keep(self, category: str, text: str, vector: Vector, version: str, now: float, answer: object) -> None:
        """Keep an answer that was asked for."""
        rule, kept = self.rule(category), self._kept.setdefault(category, [])
        if rule.quota == 0:
            return
        kept.append(_Kept(text, vector, answer, version, now, now))
        if len(kept) > rule.quota:
            kept.remove(min(kept, key=lambda k: k.used))

    def audits(self) -> bool:
        """Whether this hit is to be asked again."""
        return bool(self._rng.random() < self.audit)

    def told(self, kept: object, asked: object) -> None:
        """What an audit found."""
        self.audited += 1
        self.wrong += kept != asked

    @property
    def error(self) -> float:
        """Share of hits with a wrong answer, by the audits; nan where there were none."""
        return self.wrong / self.audited if self.audited else float("nan")


@dataclass(frozen=True, slots=True)
class Call:
    """A question as it comes: what is right depends on its intent and, where answers change, on the time."""

    category: str
    text: str
    vector: Vector
    answer: str
    when: float


@dataclass(frozen=True, slots=True)
class Kind:
    """Questions of a category."""

    share: float
    intents: int
    centres: int
    """Intents stand around so many centres: few make them dense."""
    near: float
    """Spread of intents around their centre."""
    wording: float
    """Spread of the wordings of one intent."""
    changes: float = np.inf
    """Seconds after which the answer is another one."""


KINDS: Mapping[str, Kind] = {
    "code": Kind(0.4, 300, 20, 0.35, 0.06),
    "prose": Kind(0.4, 150, 150, 0.0, 0.45),
    "prices": Kind(0.2, 40, 40, 0.0, 0.2, 300.0),
}
"""Tests of programs that differ in a detail; judged prose that says the same in other words; what a tool looks up."""
WIDTH, SECONDS_ASKED, SECONDS_FOUND = 32, 1.0, 0.002
"""Size of an embedding; seconds of a call, and of looking one up."""


def traffic(seed: int, calls: int = 3000, rate: float = 2.0) -> list[Call]:
    """Calls of some categories whose intents follow a power law."""
    rng = np.random.default_rng((seed, 138))
    names = list(KINDS)
    places: dict[str, Vector] = {}
    for name, kind in KINDS.items():
        centres = _unit(rng.standard_normal((kind.centres, WIDTH)))
        own = kind.near * _unit(rng.standard_normal((kind.intents, WIDTH)))
        places[name] = _unit(centres[np.arange(kind.intents) % kind.centres] + own)
    shares = np.array([k.share for k in KINDS.values()])
    out: list[Call] = []
    when = 0.0
    for _ in range(calls):
        when += float(rng.exponential(1 / rate))
        name = names[int(rng.choice(len(names), p=shares / shares.sum()))]
        kind = KINDS[name]
        weights = 1 / np.arange(1, kind.intents + 1)
        intent = int(rng.choice(kind.intents, p=weights / weights.sum()))
        wording = int(rng.integers(20))
        far = np.random.default_rng((seed, intent, wording, names.index(name))).standard_normal(WIDTH)
        vector = _unit((places[name][intent] + kind.wording * _unit(far[None])[0])[None])[0]
        epoch = 0 if np.isinf(kind.changes) else int(when // kind.changes)
        out.append(Call(name, f"{name} {intent} in words {wording}", vector, f"{intent} at {epoch}", when))
    return out


def _unit(values: Vector) -> Vector:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


@dataclass(frozen=True, slots=True)
class Worth:
    """What a cache did with some traffic."""

    hits: float
    """Share of the calls."""
    wrong: float
    """Share of the calls that were answered wrongly."""
    audited: float
    """What the audits say the share of wrong hits is."""
    saved: float
    """Seconds saved of each second of calls."""


def played(calls: Sequence[Call], rules: Mapping[str, CacheRule], seed: int = 0) -> Worth:
    """Answer all calls, from the cache where it has something."""
    cache, wrong = CategoryCache(rules, seed=seed), 0
    asked = 0
    for call in calls:
        where = call.category, call.text, call.vector, "judge 1", call.when
        found = cache.find(*where)
        audit = found is not None and cache.audits()
        wrong += found is not None and not audit and found != call.answer
        if audit:
            cache.told(found, call.answer)
        if found is None or audit:
            asked += 1
            cache.keep(*where, call.answer)
    count = len(calls)
    spent = asked * SECONDS_ASKED + count * SECONDS_FOUND
    return Worth(cache.hits / count, wrong / count, cache.error, 1 - spent / (count * SECONDS_ASKED))


BY_CATEGORY: Mapping[str, CacheRule] = {
    "code": CacheRule(0.985), "prose": CacheRule(0.75), "prices": CacheRule(0.92, age=100.0),
}  # fmt: skip
"""Chosen on seed 1000, which is judged nowhere."""
EXACT: Mapping[str, CacheRule] = {name: CacheRule(1.1) for name in KINDS}
"""The same text only; answers that change are still wrong when they are old."""


def one_for_all(calls: Sequence[Call], least: float) -> Worth:
    """The strictest single likeness and age with at least so many hits: the best that one rule for all can do."""
    tried = [
        played(calls, {name: CacheRule(alike, age=age) for name in KINDS})
        for alike in (0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.985)
        for age in (100.0, 300.0, np.inf)
    ]
    return min((w for w in tried if w.hits >= least), key=lambda w: w.wrong, default=max(tried, key=lambda w: w.hits))


def check(seed: int) -> Measured:
    """Wrong answers by rules for each category, and by the best single rule that has as many hits."""
    calls = traffic(seed)
    mine = played(calls, BY_CATEGORY, seed)
    theirs = one_for_all(calls, mine.hits)
    return Measured(mine.wrong, theirs.wrong, acted={"hits by likeness": mine.hits - played(calls, EXACT).hits})


def exact_and_young() -> Mapping[str, CacheRule]:
    """The same text only, and what changes for a short time."""
    return {**EXACT, "prices": replace(EXACT["prices"], age=30.0)}
