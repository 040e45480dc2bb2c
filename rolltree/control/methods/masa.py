"""A second group per prompt that foretells pass rate and length of the first, and what that may save (MASA)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from rolltree.control.methods.masa_foresight import EIGHTHS, Agreed, Part, Trust, agreed, read, reward, truth
from rolltree.control.order import ControlError, Delivery, Grades, Order, Prompt
from rolltree.control.plan import Plan, Step
from rolltree.tree.values import storable

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

    A meta rollout is worth the mean of `parts` (`rolltree.control.methods.masa_foresight.reward`), known once the
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
