"""A reward that rises for the wrong reason: held-out accuracy falls, or another measure of the same answers does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rolltree.doctor.detector import detector
from rolltree.doctor.finding import Symptom
from rolltree.doctor.fix import knob, option, work
from rolltree.doctor.run import CheckedRun, leaves
from rolltree.doctor.series import NotChecked, Series, risen, together

WINDOW = "steps over which means are taken; the first ones are the start"
RESTRAIN = (knob("grpo.kl", "pulls back to the reference"), option("lr", "smaller steps"))
STERR = 3.0
"""A difference must be so many standard errors, too."""


@detector(
    "held_out_falls",
    "Reward in training rises while accuracy on held-out items falls: the reward is being gamed, or memorised.",
    reads=("eval/pass@1", "reward/shaped"),
    fixes=(*RESTRAIN, option("eval_items", "narrower intervals"),
            work("let parts of your reward count only where an independent one does")),
    knobs={"rise": "rise of the training reward meanwhile", "window": "steps over which the reward is averaged"},
)  # fmt: skip
def held_out_falls(run: CheckedRun, *, rise: float = 0.02, window: int = 10) -> Iterator[Symptom]:
    """An evaluation whose 95 % interval lies below an earlier one's."""
    low, high, rate = together(*(run.evals(n) for n in ("eval/pass@1_low", "eval/pass@1_high", "eval/pass@1")))
    reward = run.series("reward/shaped")
    if len(rate) < 2:
        raise NotChecked(f"a fall needs two evaluations, there are {len(rate)}")
    best = np.maximum.accumulate(low.values)
    fallen = high.values < best
    found: list[tuple[int, int]] = []
    for i in np.flatnonzero(fallen).tolist():
        j = int(np.argmax(low.values[:i]))
        if _near(reward, int(rate.steps[i]), window) - _near(reward, int(rate.steps[j]), window) >= rise:
            found.append((j, i))
    if found:
        j, i = found[-1]
        over = i != len(rate) - 1
        grown = _near(reward, int(rate.steps[i]), window) - _near(reward, int(rate.steps[j]), window)
        yield Symptom(
            int(rate.steps[i]), "note" if over else "critical",
            f"held-out pass@1 fell from {rate.values[j]:.1%} (step {rate.steps[j]}) to {rate.values[i]:.1%} while the "
            f"reward in training rose by {grown:.3f} (limit {rise:g})",
            {"eval/pass@1.before": float(rate.values[j]), "eval/pass@1": float(rate.values[i]),
             "reward/shaped.rise": grown, "rise": rise},
            (), int(rate.steps[i]) if over else None,
        )  # fmt: skip


def _near(s: Series, step: int, window: int) -> float:
    """The mean of the last points up to a step, or of the first ones where none precede it."""
    before = s.values[s.steps <= step][-window:]
    return float((before if len(before) == min(window, len(s)) else s.values[:window]).mean())


@detector(
    "proxy_reward",
    "What credit sees rises while the verifier's outcome, or a part of it, falls.",
    reads=("reward/shaped", "reward/mean", "reward/solved", "reward/part/<part>"),
    fixes=(work("let parts of your reward count only where an independent one does"),
            option("reward", "a smaller weight for the part that is gamed, as in file.py:part:0.1"), *RESTRAIN),
    knobs={"rise": "rise of what credit sees", "fall": "fall of the outcome or of a part", "window": WINDOW},
)  # fmt: skip
def proxy_reward(run: CheckedRun, *, rise: float = 0.05, fall: float = 0.05, window: int = 10) -> Iterator[Symptom]:
    """Both differences to the first steps, and each beyond three standard errors."""
    taught = run.series("reward/shaped")
    worst: tuple[float, str, int, int | None, float] | None = None
    for name in ("reward/mean", "reward/solved", *run.names("reward/part/")):
        seen, other = together(taught, run.series(name))
        up, up_noise = risen(seen, window)
        down, down_noise = risen(other, window)
        # Counts (calls, attempts) may fall as a policy learns; a part is a share.
        share = float(other.values.min()) >= 0 and float(other.values.max()) <= 1
        bad = (up >= np.maximum(rise, STERR * up_noise)) & (-down >= np.maximum(fall, STERR * down_noise)) & share
        spell = Series(name, seen.steps[2 * window - 1 :][-len(up) :], -down).spell(bad, np.inf)
        if spell is not None and (worst is None or spell.value > worst[0]):
            worst = spell.value, name, spell.start, spell.until, float(up.max())
    if worst is not None:
        fell, name, start, until, rose = worst
        yield Symptom(
            start, "warning" if until is None else "note",
            f"what credit sees rose by {rose:.3f} while {name} fell by {fell:.3f} (limits {rise:g} and {fall:g})",
            {"reward/shaped.rise": rose, f"{name}.fall": fell, "rise": rise, "fall": fall}, (), until,
        )  # fmt: skip


@detector(
    "form_over_substance",
    "A part of the reward rises and lifts it, while no more answers are right: form is being learnt, not the task.",
    reads=("reward/part/<part>", "reward/shaped", "reward/solved"),
    fixes=(work("let form count only where the answer does, in your reward"),
            option("reward", "a smaller weight for form, as in file.py:form:0.1"), option("level", "an easier task")),
    knobs={"rise": "rise of the part", "lift": "rise of the whole reward", "flat": "most that the share of right "
           "answers may have risen", "window": WINDOW},
)  # fmt: skip
def form_over_substance(
    run: CheckedRun, *, rise: float = 0.2, lift: float = 0.05, flat: float = 0.02, window: int = 15
) -> Iterator[Symptom]:
    """Rewards of several parts (`rolltree.filter.rewards`); silent where the reward is the outcome alone."""
    names = run.names("reward/part/")
    if not names:
        raise NotChecked("the outcome has no parts")
    for name in names:
        one, taught, solved = together(run.series(name), run.series("reward/shaped"), run.series("reward/solved"))
        up, noise = risen(one, window)
        whole, right = risen(taught, window)[0], risen(solved, window)[0]
        bad = (up >= np.maximum(rise, STERR * noise)) & (whole >= lift) & (right <= flat)
        spell = Series(name, one.steps[-len(up) :], up).spell(bad, np.inf)
        if spell is not None:
            yield Symptom(
                spell.start, spell.severity,
                f"{name} rose by {spell.value:.2f} and the reward with it, but no more answers are right",
                {f"{name}.rise": spell.value, "rise": rise, "lift": lift, "flat": flat},
                run.show(spell, lambda r: leaves(r, r.judged & ~r.solved)), spell.until,
            )  # fmt: skip
