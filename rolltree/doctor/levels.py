"""Detectors that hold one metric against a threshold, as records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rolltree.doctor.detector import Detector
from rolltree.doctor.finding import Fix, Symptom, correction, knob, option, recipe, work
from rolltree.doctor.run import CheckedRun, leaves, roots
from rolltree.metrics.policy import grafted, log_weights
from rolltree.metrics.reward import (
    all_solved,
    all_wrong,
    split_answers,
    split_transcripts,
    wrong_majorities,
    zero_variance,
)
from rolltree.metrics.rollouts import Rollouts
from rolltree.metrics.shape import LEAST_LEAVES, effective_branches, failed_calls, repeats
from rolltree.metrics.usage import starved
from rolltree.tree.table import Ints

# A detector of one shape: a metric's mean over the last steps stands beyond a threshold.

WINDOW = "steps over which the mean is taken"
Show = Callable[[Rollouts, float], Ints]
"""Rows of nodes that show a finding, from rollouts and the threshold."""


@dataclass(frozen=True)
class Level:
    """A metric, its thresholds, and what is said of it."""

    metric: str
    limit: float
    worse: float
    """The second threshold, for critical."""
    says: str
    """The message, with `{value}` and `{limit}`."""
    below: bool = False
    """Whether less is worse."""
    relative: bool = False
    """Whether the metric is taken as a multiple of its mean over the first window."""
    show: Show | None = None

    @property
    def knob(self) -> str:
        """The name of the first threshold."""
        return "least" if self.below else "most"

    @property
    def thresholds(self) -> dict[str, float]:
        """The stated thresholds by knob."""
        return {self.knob: self.limit, "worse": self.worse, "window": 10}

    def __call__(self, run: CheckedRun, **given: float) -> Iterator[Symptom]:
        """Look at a run, with some thresholds replaced."""
        use = {**self.thresholds, **given}
        limit, worse, window = use[self.knob], use["worse"], int(use["window"])
        seen = run.series(self.metric)
        seen = seen.relative(window) if self.relative else seen
        spell = seen.beyond(limit, worse, window, below=self.below)
        if spell is None:
            return
        show = self.show
        nodes = () if show is None else run.show(spell, lambda r: show(r, limit))
        name = f"{self.metric}.relative" if self.relative else self.metric
        yield Symptom(
            spell.start, spell.severity, self.says.format(value=spell.value, limit=limit),
            {name: spell.value, self.knob: limit, "worse": worse}, nodes, spell.until,
        )  # fmt: skip


def level(
    name: str, about: str, look: Level, *, limit: str, fixes: tuple[Fix, ...], why: str, also: tuple[str, ...] = ()
) -> Detector:
    """The detector of a level. `limit` says what the first threshold is, `why` where the idea comes from."""
    knobs: Mapping[str, str] = {look.knob: limit, "worse": "the same, for critical", "window": WINDOW}
    return Detector(name, about, (look.metric, *also), fixes, knobs, look, look.thresholds, why)


REFILL = recipe("dapo", "drops groups with one outcome and samples other prompts in their place")
LARGER = knob("grpo.group", "larger groups are mixed more often")
WARMER = option("temperature", "higher: answers of one prompt differ more")
TRUNCATE = correction("tis", "truncates importance weights at 2")
FORGET = correction("m2po", "masks what is farthest off until the second moment is small")
SLOWER = option("lr", "versions lie closer together")
SHORTER = option("max_tokens", "a lower limit")
NOISE = (knob("grpo.group", "larger groups average the noise"),
         work("let your reward count only where a structural check passes"))  # fmt: skip
DIFFER = (recipe("latr", "forks where two tokens are likely and drops forks that re-converge"), WARMER,
          knob("dapo.clip_high", "keeps unlikely tokens alive"))  # fmt: skip


def longest(r: Rollouts, _: float = 0.0) -> Ints:
    """Leaves by length, the longest first."""
    return r.leaf[np.argsort(-r.own, kind="stable")]


def _heaviest(r: Rollouts, _: float) -> Ints:
    found = np.nan_to_num(log_weights(r), nan=-np.inf)
    order = np.argsort(-found, kind="stable")
    return r.leaf[order[np.isfinite(found[order])]]


def _oldest(r: Rollouts, _: float) -> Ints:
    version, at = r.ragged("version")
    known = np.flatnonzero((np.diff(at) > 0) & r.trainable & ~grafted(r))
    return known[np.argsort(version[at[known]], kind="stable")]


LEVELS: tuple[Detector, ...] = (
    level(
        "zero_variance",
        "Groups taught although all their leaves had one reward; no group-centred credit draws a gradient from them.",
        Level("reward/zero_variance_trained", 0.6, 0.85,
              "{value:.0%} of the groups that taught had one reward for all their leaves (limit {limit:.0%})",
              show=lambda r, _: roots(r, zero_variance(r))),
        limit="share of the groups trained on", fixes=(REFILL, LARGER, WARMER),
        why="DAPO (arXiv 2503.14476) section 3.2.",
    ),
    level(
        "weak_credit",
        "Most trained tokens have no advantage: the update moves by few tokens of few prompts.",
        Level("policy/zero_advantage", 0.6, 0.85,
              "{value:.0%} of the trained tokens have no advantage (limit {limit:.0%})"),
        limit="share of the trained tokens", fixes=(REFILL, LARGER, WARMER),
        why="Groups of one reward cause it (`zero_variance`), and so do credits that are silent on most tokens.",
    ),
    level(
        "solved_prompts", "Most of the budget goes to prompts whose every answer is right already.",
        Level("reward/all_solved_tokens", 0.5, 0.8,
              "{value:.0%} of the tokens went to prompts that every rollout solved (limit {limit:.0%})",
              show=lambda r, _: roots(r, all_solved(r))),
        limit="share of the decoded tokens", fixes=(option("level", "a harder task"), REFILL),
        why="Tokens decoded in groups that are all right.", also=("reward/all_solved",),
    ),
    level(
        "all_wrong_prompts", "Most of the budget goes to prompts that no rollout solves and where all fail alike.",
        Level("reward/all_wrong_tokens", 0.6, 0.85,
              "{value:.0%} of the tokens went to prompts that no rollout solved (limit {limit:.0%})",
              show=lambda r, _: roots(r, all_wrong(r))),
        limit="share of the decoded tokens",
        fixes=(option("level", "an easier task"), knob("grpo.group", "more tries for a prompt"), REFILL),
        why="Tokens decoded in groups without a right answer and with one outcome.", also=("reward/all_wrong",),
    ),
    level(
        "branch_collapse", "Trees hang on one branch: nearly all leaves stand below the same child of the first fork.",
        Level("rollout/effective_branches", 1.5, 1.15,
              "{value:.2f} effective branches at the first fork (at least {limit:g} expected)", below=True,
              show=lambda r, least: roots(r, np.nan_to_num(effective_branches(r), nan=np.inf) < least)),
        limit=f"effective branches of trees with {LEAST_LEAVES} leaves or more",
        fixes=(knob("treepo.ways", "more branches at every fork"),
               knob("treepo.first_most", "more branches at the root"),
               knob("ettrl.apart", "forks farther apart"), recipe("grpo", "independent rollouts")),
        why="exp of the entropy of leaf counts at the first fork.",
    ),
    level(
        "duplicates", "Wrong rollouts repeat each other word for word; copies add no information.",
        Level("rollout/duplicates", 0.5, 0.75,
              "{value:.0%} of the wrong rollouts repeat another one exactly (limit {limit:.0%})",
              show=lambda r, _: leaves(r, repeats(r) & r.wrong)),
        limit="share of leaves that repeat an earlier one of their tree", fixes=DIFFER,
        why="Whole transcripts of rollouts that are not right: repeating a right one is what was to be learnt.",
    ),
    level(
        "truncated_answers",
        "Many answers are cut off at the length limit; most are scored as wrong, which they may not be.",
        Level("rollout/truncated", 0.2, 0.5, "{value:.0%} of the rollouts end at the length limit (limit {limit:.0%})",
              show=lambda r, _: leaves(r, r.is_("finish", "length")[r.leaf])),
        limit="share of leaves that end at the limit",
        fixes=(option("max_tokens", "more room"), knob("dapo.overlong", "a soft penalty before the limit"),
               knob("treepo.repeat", "ends paths that only repeat themselves")),
        why="DAPO (arXiv 2503.14476) section 3.4.",
    ),
    level(
        "stragglers", "A few very long rollouts hold up the step: the rest has ended long before.",
        Level("rollout/length_tail", 0.75, 0.9,
              "nine in ten rollouts have ended for {value:.0%} of the longest one's tokens (limit {limit:.0%})",
              show=longest),
        limit="share of the longest rollout's time in which nine tenths have ended",
        fixes=(SHORTER, knob("treepo.repeat", "ends paths that only repeat themselves"),
               knob("dapo.overlong", "a soft penalty near the limit")),
        why="APRIL (arXiv 2509.18521): one step waits for its longest rollout.", also=("rollout/length_max",),
    ),
    level(
        "entropy_explosion", "The policy is becoming noise: its entropy has risen far above where it started.",
        Level("policy/entropy", 1.8, 3.0, "entropy has risen to {value:.1f} times its start (limit {limit:g})",
              relative=True),
        limit="multiple of the starting entropy",
        fixes=(option("lr", "smaller steps"), knob("grpo.kl", "pulls back to the reference"),
               option("clip_norm", "bounds each update"), option("temperature", "lower")),
        why="Entropy against the first steps, which are as many as the window.",
    ),
    level(
        "wrong_labels",
        "The majority that stands in for the unknown label is wrong, as the verifier (which does not teach) knows.",
        Level("reward/vote_wrong", 0.4, 0.6,
              "the majority was wrong for {value:.0%} of the prompts it labelled (limit {limit:.0%})",
              show=lambda r, _: roots(r, wrong_majorities(r))),
        limit="share of voted prompts",
        fixes=(knob("ettrl.weigh", '"fork": a wrong stem does not outvote independent ones'),
               knob("ettrl.stems", "more independent voters"), recipe("grpo", "labels of the verifier")),
        why="Where most votes are wrong, training makes the error certain.", also=("reward/vote_share",),
    ),
    level(
        "idle_engine", "Most of the engine's peak load stands idle while a step grows.",
        Level("time/idle_load", 0.8, 0.92,
              "{value:.0%} of the engine's peak load stood idle while rollouts grew (limit {limit:.0%})"),
        limit="1 − mean over most requests in flight",
        fixes=(option("prompts", "more rollouts in flight"), option("max_tokens", "cuts the tail that all wait for"),
               knob("dapo.rounds", "fewer rounds that wait for each other")),
        why="From the clock times of events; the engine's own batch limit is not known here.",
    ),
    level(
        "starved_prompts",
        "Prompts get no finished rollout: all theirs were still running, aborted or out of budget when the step ended.",
        Level("rollout/starved_prompts", 0.05, 0.25,
              "{value:.0%} of the prompts had no rollout that came to its end (limit {limit:.0%})",
              show=lambda r, _: roots(r, starved(r))),
        limit="share of the prompts",
        fixes=(option("max_tokens", "rollouts that fit the budget"), option("prompts", "fewer prompts share a budget"),
               knob("grpo.group", "smaller groups share it, too")),
        why="What ends first is short: stopping by count or budget starves the slow prompts.",
        also=("rollout/unfinished",),
    ),
    level(
        "tool_failures", "Most calls of tools fail: the policy learns from error messages.",
        Level("rollout/tool_failures", 0.6, 0.85, "{value:.0%} of the tool calls failed (limit {limit:.0%})",
              show=lambda r, _: np.flatnonzero(failed_calls(r))),
        limit="share of calls that fail",
        fixes=(recipe("cleaner", "replaces failed calls by the policy's own corrections before they teach"),
               recipe("arpo", "branches after calls, where the policy is unsure"), option("level", "an easier task")),
        why="Environment nodes whose notes say `failed`.", also=("rollout/tool_calls",),
    ),
    level(
        "retries", "Calls to the verifier, the environment or the engine fail and are tried again, in vain or not.",
        Level("rollout/retries", 0.1, 0.5, "{value:.2f} calls per rollout were tried again (limit {limit:g})"),
        limit="retries per leaf",
        fixes=(work("read why in the events of a tree (rolltree view), mend that, then go on with --resume"),
               option("cluster_workers", "more processes for verifiers, where these are too slow")),
        why="What crashes, or will crash next.",
    ),
    level(
        "noisy_verifier",
        "The same transcript, word for word, got different outcomes: the verdict does not depend on the answer alone.",
        Level("reward/split_transcripts", 0.01, 0.1,
              "{value:.1%} of the repeated transcripts got two different outcomes (limit {limit:.1%})",
              show=lambda r, _: leaves(r, split_transcripts(r)[0])),
        limit="share of the transcripts that stand twice in a tree", fixes=NOISE,
        why="A verifier is a function of item and transcript.",
    ),
    level(
        "split_answers",
        "The same final answer to the same prompt was called right in one rollout and wrong in another.",
        Level("reward/split_answers", 0.25, 0.6,
              "{value:.0%} of the repeated answers were called right and wrong (limit {limit:.0%})",
              show=lambda r, _: leaves(r, split_answers(r)[0])),
        limit="share of the answers that stand twice in a tree", fixes=NOISE,
        why="Fine in small numbers where a task judges more than the answer (hidden tests, steps, formats).",
    ),
    level(
        "heavy_weights",
        "Few rollouts carry most of the importance weight: the update follows them and not the batch.",
        Level("policy/ess", 0.5, 0.2,
              "the importance weights leave {value:.0%} of the rollouts in effect (at least {limit:.0%} expected)",
              below=True, show=_heaviest),
        limit="effective share of the rollouts, (Σw)²/(nΣw²)",
        fixes=(TRUNCATE, correction("sequence_mis", "leaves out rollouts with a weight above 2"),
               option("temperature", "1 samples from the policy itself"), recipe("gspo", "one ratio per sequence")),
        why="Kish's effective sample size over whole rollouts.",
    ),
    level(
        "stale_rollouts", "Rollouts are trained on many versions after they were written.",
        Level("staleness/mean", 2.0, 8.0, "trained tokens are {value:.1f} versions behind on average (limit {limit:g})",
              show=_oldest),
        limit="versions behind, mean over trained tokens",
        fixes=(FORGET, TRUNCATE, SLOWER, option("epochs", "fewer passes a step")),
        why="One or two are harmless; beyond eight even decoupled objectives suffer (AReaL, arXiv 2505.24298).",
        also=("staleness/max",),
    ),
    level(
        "old_replay", "Replayed branches were written by weights long gone.",
        Level("staleness/replayed_mean", 16.0, 64.0,
              "replayed tokens are {value:.0f} versions old on average (limit {limit:g})",
              show=lambda r, _: np.flatnonzero(r.is_("birth", "graft"))),
        limit="versions behind, mean over grafted tokens", fixes=(FORGET, TRUNCATE, SLOWER),
        why="The staleness of grafted branches.", also=("staleness/replayed",),
    ),
    level(
        "mismatch",
        "Engine and trainer do not compute the same policy: on-policy data is off-policy without anybody deciding it.",
        Level("policy/mismatch", 0.01, 0.05,
              "engine and trainer differ by {value:.3g} nats per token at the same weights (limit {limit:g})"),
        limit="mean |difference| of log-probs of tokens of the current weights",
        fixes=(TRUNCATE, correction("mis", "leaves out tokens the two disagree about"),
               option("policy", "one precision for both sides")),
        why="arXiv 2510.26788: mismatch of numerics between sampling and training.",
        also=("policy/mismatch_max", "policy/mismatch_over"),
    ),
)  # fmt: skip
