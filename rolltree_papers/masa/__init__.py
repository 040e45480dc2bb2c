"""MASA: meta-awareness through self-alignment (arXiv 2510.03259)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, ClassVar, Literal, cast

from rolltree.control.order import ControlError, Delivery, Grades, Order, Prompt
from rolltree.control.plan import Plan, Step
from rolltree.credit.registry import load_credit
from rolltree.generate.independent import Independent
from rolltree.objective.registry import load_objective
from rolltree.recipe.recipe import Card, Counter, Evidence, Parts, check_group
from rolltree.tree.store.values import read_json, storable

# What a policy foretells about its own rollouts, how right it was, and when its word may be acted on (MASA).

Part = Literal["notion", "pass", "length"]
EIGHTHS = 8
"""Pass rates are foretold in eighths."""
OBJECT = re.compile(r"\{[^{}]*\}")
NUMBER = re.compile(r"\d+")
WORD = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Foretold:
    """A reading of one meta rollout; None where it does not say."""

    passes: int | None = None
    length: int | None = None
    notions: tuple[str, ...] = ()


def read(text: str) -> Foretold:
    """The last JSON object of a text (math_notion, pass_rate, solution_length), or else its numbers and words in order.

    The second form is for policies too small to write JSON. A pass rate beyond 8 eighths says nothing.
    """
    for found in reversed(OBJECT.findall(text)):
        try:
            said: dict[str, Any] = read_json(found, parse_int=_number)
        except ValueError:
            continue
        listed: Any = said.get("math_notion", ())
        notions = cast(list[Any], listed) if isinstance(listed, list) else []
        return Foretold(
            _eighths(said.get("pass_rate")), _whole(said.get("solution_length")),
            tuple(_singular(n.lower().strip()) for n in notions if isinstance(n, str) and n.strip()),
        )  # fmt: skip
    numbers = [_number(n) for n in NUMBER.findall(text)[:2]]
    first, second = (*numbers, None, None)[:2]
    return Foretold(_eighths(first), second, tuple(_singular(w.lower()) for w in WORD.findall(text)))


@dataclass(frozen=True, slots=True)
class Truth:
    """What a prompt's solution rollouts showed."""

    rate: float
    lengths: tuple[int, ...]
    """Of right solutions."""
    right: tuple[str, ...]
    wrong: tuple[str, ...]


def truth(rewards: Sequence[float], lengths: Sequence[int], texts: Sequence[str]) -> Truth:
    """From a delivery's rewards, lengths and texts; right is an outcome of one half or more."""
    rows = list(zip(rewards, lengths, texts, strict=True))
    return Truth(
        sum(min(max(r, 0.0), 1.0) for r in rewards) / len(rewards),
        tuple(n for r, n, _ in rows if r >= 0.5),
        tuple(t.lower() for r, _, t in rows if r >= 0.5),
        tuple(t.lower() for r, _, t in rows if r < 0.5),
    )


def reward(said: Foretold, true: Truth, prompt: str, parts: Sequence[Part] = ("notion", "pass", "length")) -> float:
    """The mean of the parts: 0.01^|error of the pass rate|, length within, and the share of notions that tell.

    As the released code has it: a length counts if it lies strictly between the shortest and the longest right
    solution (so a single length can never be met), a notion if more right than wrong solutions contain it and the
    problem does not.
    """
    worth = {"notion": _notions(said, true, prompt), "pass": 0.0, "length": 0.0}
    if said.passes is not None:
        worth["pass"] = 0.01 ** abs(true.rate - said.passes / EIGHTHS)
    if said.length is not None and true.lengths:
        worth["length"] = float(min(true.lengths) < said.length < max(true.lengths))
    return sum(worth[part] for part in parts) / len(parts)


@dataclass(frozen=True, slots=True)
class Agreed:
    """What a prompt's meta rollouts say together."""

    rate: float | None
    """Mean of the foretold pass rates."""
    trivial: float
    """Share of all meta rollouts that say 8 of 8."""
    hopeless: float
    """Share that says none."""
    length: float | None
    """Median of the foretold lengths."""


def agreed(said: Sequence[Foretold]) -> Agreed:
    """The readings of one prompt; those that say nothing agree with nobody."""
    passes = [s.passes for s in said if s.passes is not None]
    lengths = [s.length for s in said if s.length is not None]
    return Agreed(
        sum(passes) / len(passes) / EIGHTHS if passes else None,
        passes.count(EIGHTHS) / len(said) if said else 0.0,
        passes.count(0) / len(said) if said else 0.0,
        median(lengths) if lengths else None,
    )


@storable
@dataclass(slots=True)
class Trust:
    """How often a kind of prediction came true, older ones counting less; it is acted on once it has earned it."""

    least: float = 0.9
    """Share that must have come true."""
    calls: float = 16.0
    """Predictions that must have been checked before, discounted ones included."""
    keep: float = 0.98
    """What is left of the record with each prediction that is checked."""
    made: float = 0.0
    true: float = 0.0

    @property
    def precision(self) -> float:
        """Share that came true; NaN before the first."""
        return self.true / self.made if self.made > 0 else math.nan

    @property
    def earned(self) -> bool:
        """Whether predictions may be acted on."""
        return self.made >= self.calls and self.precision > self.least

    def check(self, came_true: bool) -> None:
        """Take note of a prediction whose truth is known."""
        self.made = self.keep * self.made + 1
        self.true = self.keep * self.true + came_true


def _number(digits: str) -> int | None:
    """A number as written; those of absurd length cannot be meant, and are slow or impossible to read."""
    return int(digits) if len(digits) < 10 else None


def _eighths(value: Any) -> int | None:
    whole = _whole(value)
    return whole if whole is not None and whole <= EIGHTHS else None


def _whole(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and math.isfinite(value) and value >= 0 else None


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and len(word) > 2 else word


def _notions(said: Foretold, true: Truth, prompt: str) -> float:
    fresh = [n for n in said.notions if n not in prompt.lower()]
    telling = [n for n in fresh if sum(n in t for t in true.right) > sum(n in t for t in true.wrong)]
    return len(telling) / len(fresh) if fresh else 0.0


# A second group per prompt that foretells pass rate and length of the first, and what that may save (MASA).

META = "meta"
"""The arm of meta rollouts."""


@storable
@dataclass(slots=True)
class MasaState:
    """How far the policy's word about itself can be trusted."""

    skip: Trust = field(default_factory=Trust)
    """Of prompts called trivial or hopeless: whether their group had no variance."""
    cut: Trust = field(default_factory=Trust)
    """Of foretold lengths: whether a right solution ended within their multiple."""
    mean: float = 0.5
    """Running mean of pass rates: what foresight is held against."""


@dataclass(frozen=True, slots=True)
class Masa:
    """Half of a step's groups solve prompts, half foretell how that will go; each is normalised within itself.

    A meta rollout is worth the mean of `parts` (`rolltree_papers.masa.reward`), known once the
    solutions are. `template` asks for the prediction: the default is for policies that continue a line with numbers;
    larger ones can be asked for JSON with math_notion, pass_rate (0 to 8) and solution_length, which is read too.

    `efficient` runs the meta group first: prompts that a share `agree` of it calls trivial or hopeless are skipped, and
    solutions are cut at `multiple` times the foretold length. Both begin only when such predictions came true more than
    `trust` of the time, and a share `explore` is spared so that they stay checked (the published gating code is not
    public; thresholds and cut are reconstructed). Cloning of the best predictions is left out.
    """

    name: ClassVar[str] = "masa"
    paper: ClassVar[str] = "2510.03259"
    needs: ClassVar[frozenset[str]] = frozenset({"one turn"})
    asks_own: ClassVar[bool] = True
    template: str = "{prompt} passes of 8, length: "
    """How a prediction is asked for."""
    width: int = 0
    """Meta rollouts of a prompt; 0 = as many as solutions."""
    parts: tuple[Part, ...] = ("notion", "pass", "length")
    """What a prediction is scored by."""
    efficient: bool = False
    """Whether predictions come first and spare prompts that are too easy or too hard."""
    agree: float = 0.75
    """Share of the predictions that must agree before a prompt is spared."""
    multiple: float = 2.0
    """How many times the foretold length a solution may have."""
    trust: float = 0.9
    """How often predictions must have come true before they are followed."""
    explore: float = 0.1
    """Share of the prompts that is asked in any case."""

    def __post_init__(self) -> None:
        if "{prompt}" not in self.template:
            raise ControlError(f"masa: template={self.template!r} does not show the prompt; write {{prompt}} in it")
        unknown = set(self.parts) - {"notion", "pass", "length"}
        if unknown or not self.parts:
            raise ControlError(f"masa: parts={self.parts} must be some of notion, pass and length")
        if self.width < 0 or self.multiple < 1 or not all(0 <= x <= 1 for x in (self.agree, self.trust, self.explore)):
            raise ControlError(
                f"masa: width={self.width} must not be below 0, multiple={self.multiple} not below 1, and "
                f"agree={self.agree}, trust={self.trust} and explore={self.explore} are shares from 0 to 1"
            )

    def start(self) -> MasaState:
        """Nothing is trusted."""
        return MasaState(Trust(self.trust), Trust(self.trust))

    def plan(self, step: Step, state: MasaState) -> Plan:
        """Meta group and solutions, at once or in this order; then the grades of the meta group."""
        prompts, asked = self._taken(step)
        about = {meta.place: prompt for prompt, meta in zip(prompts, asked, strict=False)}
        metas = [Order(meta, self.width or None, META, judged=False, why="foretells") for meta in asked]
        if self.efficient and metas:
            told = yield metas
            foretold = {about[d.order.prompt.place].place: agreed([read(t) for t in d.texts]) for d in told}
            orders = [self._solving(step, state, prompt, foretold.get(prompt.place)) for prompt in prompts]
            solved = yield [order for order in orders if order is not None]
        else:
            both = yield [*(Order(prompt, texts=True, last=True) for prompt in prompts), *metas]
            told, solved = [d for d in both if not d.order.judged], [d for d in both if d.order.judged]
        yield self._graded(state, about, told, {d.order.prompt.place: d for d in solved if d.n})

    def _taken(self, step: Step) -> tuple[list[Prompt], list[Prompt]]:
        """Prompts, and the same once more as meta prompts. A place follows its prompt's, so that each of a step's
        updates learns from both."""
        prompts, asked = list[Prompt](), list[Prompt]()
        metas = step.prompts // 2
        while len(prompts) + metas < step.prompts and (taken := step.take(1)):
            prompts += taken
            if len(asked) < metas:
                item = taken[0].item
                asked += step.prompts_of([replace(item, prompt=self.template.replace("{prompt}", item.prompt))])
        return prompts, asked

    def _solving(self, step: Step, state: MasaState, prompt: Prompt, said: Agreed | None) -> Order | None:
        """The order of a prompt under what was foretold of it; None = it is skipped."""
        spared = step.rng.random() < self.explore
        if said is None or spared:
            return Order(prompt, texts=True, last=True, why="spared to check what was foretold" if said else "")
        if state.skip.earned and max(said.trivial, said.hopeless) >= self.agree:
            return None
        limit = math.ceil(self.multiple * said.length) if state.cut.earned and said.length else None
        why = "" if limit is None else f"foretold {said.length:g} tokens"
        return Order(prompt, texts=True, limit=limit, why=why, last=True)

    def _graded(
        self, state: MasaState, about: Mapping[int, Prompt], told: Sequence[Delivery],
        solutions: Mapping[int, Delivery],
    ) -> Grades:  # fmt: skip
        """The meta groups' outcomes, and what their word was worth; `about` says whom each place foretells."""
        rewards: dict[int, tuple[float, ...]] = {}
        numbers: dict[int, dict[str, float]] = {}
        mean = state.mean
        for d in told:
            place = d.order.prompt.place
            prompt = about[place]
            solution = solutions.get(prompt.place)
            if solution is None:
                continue
            true = truth(solution.rewards, solution.lengths, solution.texts)
            said = [read(text) for text in d.texts]
            rewards[place] = tuple(reward(s, true, prompt.item.prompt, self.parts) for s in said)
            together = agreed(said)
            self._check(state, together, solution, true.lengths)
            guess = mean if together.rate is None else together.rate
            numbers[place] = {
                "meta_reward": sum(rewards[place]) / max(len(said), 1),
                "meta_brier": (guess - true.rate) ** 2,
                "meta_brier_of_mean": (mean - true.rate) ** 2,
                "meta_readable": sum(s.passes is not None for s in said) / max(len(said), 1),
                "meta_precision": state.skip.precision,
                "meta_cut_safe": state.cut.precision,
            }
            state.mean += 0.02 * (true.rate - state.mean)
        return Grades(rewards, numbers)

    def _check(self, state: MasaState, said: Agreed, solution: Delivery, right: Sequence[int]) -> None:
        """Hold what was foretold against what came; a cut group cannot show what lies beyond its cut."""
        if max(said.trivial, said.hopeless) >= self.agree:
            state.skip.check(max(solution.rewards) - min(solution.rewards) <= 1e-9)
        if said.length and right and solution.order.limit is None:
            state.cut.check(min(right) <= self.multiple * said.length)


def asks_for(parts: Sequence[Part]) -> str:
    """A template that asks a policy able to follow instructions for a prediction in JSON."""
    fields = {
        "notion": '"math_notion": the concepts a right solution uses, as a list of strings',
        "pass": f'"pass_rate": how many of {EIGHTHS} attempts of yours would be right, as a whole number',
        "length": '"solution_length": how many tokens a right solution takes, as a whole number',
    }
    listed = "; ".join(fields[part] for part in parts)
    return f"{{prompt}}\n\nDo not solve this problem. Think about it, then say in one JSON object: {listed}.\n"


@dataclass(frozen=True, slots=True)
class MasaRecipe:
    """GRPO on two groups per prompt: solutions, and predictions of how many of them are right and how long they are.

    Both groups train the same weights in one batch. Meta rollouts are tokens too: at an equal number of decoded tokens
    a run without `efficient` sees about half of the solutions that its baseline sees. Prompts here hold no concepts, so
    `parts` leaves notions out; give all three, and a `template` that asks for JSON
    (`rolltree_papers.masa.asks_for`), to a policy that can name them. A length is foretold right strictly
    between those of the right solutions; where these are alike, as in the evidence's task, nothing is, so its evidence
    scores the pass rate alone.
    """

    card: ClassVar[Card] = Card(
        "masa", "Meta-awareness by self-alignment", "2510.03259", 2025,
        "GRPO's score 1.28 times faster; +19.3 % on AIME25 and +6.2 % on average over six mathematics sets",
        ("generate", "control"), "grpo",
        Evidence("pass@1", "grpo", least=0.04, task="regime:fresh", seeds=6,
                 settings=("masa:parts=('pass',)", "masa:clip_high=0.2")),
        counter=Counter("budget/arm/meta"),
    )  # fmt: skip
    group: int = 8
    template: str = "{prompt} passes of 8, length: "
    """What asks for the prediction."""
    width: int = 0
    """Meta rollouts of a prompt; 0 = as many as solutions."""
    parts: tuple[Part, ...] = ("pass", "length")
    """What is predicted, in this order."""
    efficient: bool = False
    """Whether predictions that are trusted save rollouts: prompts are skipped, solutions cut."""
    agree: float = 0.75
    """Share of the meta rollouts that must call a prompt trivial or hopeless for it to be skipped."""
    multiple: float = 2.0
    """How many times the foretold length a solution may take before it is cut."""
    trust: float = 0.9
    """Share of such predictions that must have come true before they are followed."""
    explore: float = 0.1
    """Share of the prompts that is spared, so that predictions stay checked."""
    clip_low: float = 0.2
    clip_high: float = 0.28

    def build(self) -> Parts:
        """Two groups per prompt, group credit, asymmetric clip without a KL term."""
        check_group("masa", self.group)
        control = Masa(
            self.template, self.width, self.parts, self.efficient, self.agree, self.multiple, self.trust, self.explore
        )
        return Parts(
            "masa", Independent(self.group), load_credit("grpo"),
            load_objective("clipped", clip_low=self.clip_low, clip_high=self.clip_high), averaging="token",
            control=control,
        )  # fmt: skip
