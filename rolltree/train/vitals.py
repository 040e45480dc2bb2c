"""Numbers of a step that say whether its rollouts are healthy.

Training logs them; the doctor reads them from the log or computes them from saved forests of any program.

A family is a function of the rollouts whose numbers share the prefix of its name; what cannot be measured is left out,
never guessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from rolltree.train.rollouts import Rollouts
from rolltree.train.timing import idle
from rolltree.tree import Tree
from rolltree.tree.table import Bools, Floats

Numbers = dict[str, float]
SAME = 1e-9
"""Outcomes that differ by no more are the same."""
NOT_PARTS = frozenset(
    {"reward", "outcome", "solved", "true_reward", "vote", "overlong", "step_reward", "advantage", "value", "prior"}
)
"""Scores of a leaf that are no components of its outcome."""


def vitals(trees: Iterable[Tree], version: int) -> Numbers:
    """Every family's numbers for the trees of one step; `version` is the weights' that grew them."""
    from rolltree.train.sources import Held

    rollouts = Rollouts(Held(list(trees)), version)
    out: Numbers = {}
    for name, family in FAMILIES.items():
        if name not in BY_TRAINER:
            out |= family(rollouts)
    return out


def ess(log_weights: Floats) -> float:
    """Effective share of a sample under importance weights: (Σw)² / (n Σw²); Kish 1965."""
    w = np.exp(log_weights - log_weights.max())
    return float(w.sum() ** 2 / (len(w) * np.square(w).sum()))


def plain(r: Rollouts) -> Numbers:
    """Outcome, length, truncation and entropy, as the training loop names them."""
    out: Numbers = {}
    if r.judged.any():
        out["reward"], out["solved"] = float(r.outcome[r.judged].mean()), float(r.solved.sum() / r.judged.sum())
        out["length"] = float(r.own[r.judged].mean())
    if len(r.leaf):
        out["truncated"] = float(r.is_("finish", "length")[r.leaf].mean())
    entropy, at = r.flat("entropy")
    own = np.repeat(r.trainable, np.diff(at)) & np.isfinite(entropy)
    return out | ({"policy_entropy": float(entropy[own].mean())} if own.any() else {})


def groups(r: Rollouts) -> Numbers:
    """Prompts with two leaves or more: those without a gradient, solved, hopeless, what they cost; repeated paths."""
    many = r.count(r.judged) >= 2
    if not many.any():
        return {}
    solved, hopeless = solved_groups(r), hopeless_groups(r)
    tokens = np.bincount(r.tree, r.length * r.trainable, len(many))
    out = {
        "groups.solved": float(solved[many].mean()), "groups.hopeless": float(hopeless[many].mean()),
        "groups.solved_tokens": float(tokens[solved].sum() / max(tokens.sum(), 1)),
        "groups.hopeless_tokens": float(tokens[hopeless].sum() / max(tokens.sum(), 1)),
    }  # fmt: skip
    taught = r.count(r.trained) >= 2
    if taught.any():
        out["groups.flat"] = float(flat_groups(r)[taught].mean())
    missed = wrong(r) & many[r.leaf_tree]
    if missed.any() and len(r.transcript):
        out["groups.duplicated"] = float(repeats(r)[missed].mean())
    return out


def wrong(r: Rollouts) -> Bools:
    """Leaves with an outcome that are not right: repeating those teaches nothing, repeating right ones was the aim."""
    return r.judged & ~r.solved


def flat_groups(r: Rollouts) -> Bools:
    """Trees that taught with two leaves or more, all with the same reward."""
    return (r.count(r.trained) >= 2) & (r.spread(r.reward, r.trained) <= SAME)


def solved_groups(r: Rollouts) -> Bools:
    """Trees all of whose two leaves or more are right."""
    return (r.count(r.judged) >= 2) & (r.count(r.solved) == r.count(r.judged))


def hopeless_groups(r: Rollouts) -> Bools:
    """Trees of two leaves or more without a right one, all with the same outcome."""
    alike = r.spread(r.outcome, r.judged) <= SAME
    return (r.count(r.judged) >= 2) & (r.count(r.solved) == 0) & alike


def repeats(r: Rollouts) -> Bools:
    """Leaves whose whole path an earlier leaf of the tree has written already."""
    key = np.stack([r.leaf_tree.astype(np.uint64), r.transcript])
    first = np.zeros(len(r.leaf), np.bool_)
    first[np.unique(key, axis=1, return_index=True)[1]] = True
    return ~first


def branches(r: Rollouts) -> Numbers:
    """Effective branches at the first fork, over trees with leaves enough to have some."""
    found = effective(r)
    known = np.isfinite(found)
    return {"branches.effective": float(found[known].mean())} if known.any() else {}


def effective(r: Rollouts) -> Floats:
    """Per tree, exp of the entropy of leaf counts over the children of its first fork; NaN for trees of few leaves."""
    below = r.below(np.ones(len(r.leaf), np.int64))
    children = np.bincount(r.parent[r.parent >= 0], minlength=len(r.parent))
    forks = np.flatnonzero(children > 1)
    # Depth first, the first fork of a tree is its first row with two children.
    first = forks[np.unique(r.tree[forks], return_index=True)[1]]
    above = np.full(len(r.parent), -1, np.int64)
    above[first] = r.tree[first]
    child = np.flatnonzero((r.parent >= 0) & (np.append(above, -1)[r.parent] >= 0))
    tree = r.tree[child]
    leaves = r.count(np.ones(len(r.leaf), np.bool_))
    share = below[child] / np.maximum(leaves[tree], 1)
    entropy = -np.bincount(tree, share * np.log(np.maximum(share, 1e-300)), len(leaves))
    return np.where(leaves >= LEAST_LEAVES, np.exp(entropy), np.nan)


LEAST_LEAVES = 4
"""Trees with fewer leaves say nothing about branches."""


def lengths(r: Rollouts) -> Numbers:
    """Policy tokens per path: the middle, the longest, the tail, and right against wrong answers of the same prompts.

    `lengths.bias` is how much longer wrong ones are, as a share of the mean; `lengths.tail` is the
    share of the longest rollout's time in which nine tenths of the rollouts have ended already.
    """
    ended = r.is_("status", "done")[r.leaf]
    if not ended.any():
        return {}
    own = r.own[ended]
    most, ninth = float(own.max()), float(np.quantile(own, 0.9))
    out = {"lengths.median": float(np.median(own)), "lengths.most": most}
    out["lengths.tail"] = (most - ninth) / most if most else 0.0
    right, wrong = r.mean(r.own, r.solved), r.mean(r.own, r.judged & ~r.solved)
    mixed = np.isfinite(right) & np.isfinite(wrong)
    if mixed.any():
        out |= {"lengths.right": float(right[mixed].mean()), "lengths.wrong": float(wrong[mixed].mean())}
        gap = float((wrong[mixed] - right[mixed]).mean())
        out["lengths.bias"] = gap / max(float(own.mean()), 1.0)
    return out


def cut(r: Rollouts) -> Numbers:
    """Truncated leaves: what share of them is scored as wrong and taught so."""
    cut_off = r.is_("finish", "length")[r.leaf] & r.judged
    return {"cut.wrong": float((~r.solved)[cut_off].mean())} if cut_off.any() else {}


def failed(r: Rollouts) -> Numbers:
    """Failed leaves as a share of all, and by what broke; calls that were tried again, per leaf."""
    if not len(r.leaf):
        return {}
    events = r.source.events()
    why = [w for kind, w in zip(events.kind, events.why, strict=True) if kind == "fail"]
    said = {name: sum(part in w.partition(":")[0] for w in why) for name, part in BREAKERS.items()}
    out = {"failed.share": float(r.is_("status", "failed")[r.leaf].mean())}
    out |= {f"failed.{name}": count / len(r.leaf) for name, count in said.items()}
    return out | {"failed.retries": sum(kind == "retry" for kind in events.kind) / len(r.leaf)}


BREAKERS = {"verifier": "verifier", "environment": "environment", "engine": "engine", "judge": "judging"}
"""What can break, with the word that the hand's events begin with."""


def verdicts(r: Rollouts) -> Numbers:
    """Whole transcripts, and final answers, that stand more than once in a tree: the share that got two outcomes."""
    out: Numbers = {}
    if len(r.transcript):
        out |= _splits("verdicts", r, r.transcript.view(np.int64), r.judged)
    return out | _splits("verdicts.answer", r, answer_codes(r), r.judged & (answer_codes(r) >= 0))


def answer_codes(r: Rollouts) -> np.ndarray:
    """Each leaf's final answer as a number; -1 where it gave none."""
    code: dict[str, int] = {}
    return np.array([-1 if a is None else code.setdefault(a, len(code)) for a in r.answers()], np.int64)


def split_leaves(r: Rollouts, key: np.ndarray, among: Bools) -> tuple[Bools, int, int]:
    """Leaves whose key stands in their tree with two outcomes; how many keys stand twice, how many of them differ."""
    split = np.zeros(len(r.leaf), np.bool_)
    rows = np.flatnonzero(among)
    if not len(rows):
        return split, 0, 0
    order = rows[np.lexsort((key[rows], r.leaf_tree[rows]))]
    new = (np.diff(r.leaf_tree[order]) != 0) | (np.diff(key[order]) != 0)
    at = np.concatenate([[0], np.flatnonzero(new) + 1])
    size = np.diff(np.append(at, len(order)))
    said = r.outcome[order]
    differ = np.maximum.reduceat(said, at) - np.minimum.reduceat(said, at) > SAME
    split[order[np.repeat(differ, size)]] = True
    return split, int((size > 1).sum()), int(differ.sum())


def _splits(name: str, r: Rollouts, key: np.ndarray, among: Bools) -> Numbers:
    _, repeated, differ = split_leaves(r, key, among)
    dot = "_" if "." in name else "."
    return {f"{name}{dot}repeated": float(repeated)} | ({f"{name}{dot}split": differ / repeated} if repeated else {})


def vote(r: Rollouts) -> Numbers:
    """Where a majority is the label: its share of the votes, and how often the verifier calls it wrong."""
    votes = r.score("vote")[r.leaf]
    voted = np.isfinite(votes) & r.judged
    if not voted.any():
        return {}
    wrong = wrong_majorities(r)
    known = np.isfinite(r.mean(r.outcome, voted & (r.reward > 0.5)))
    out = {"vote.share": float(np.nanmean(r.mean(votes, voted & (r.reward > 0.5))))} if known.any() else {}
    return out | ({"vote.wrong": float(wrong[known].mean())} if known.any() else {})


def wrong_majorities(r: Rollouts) -> Bools:
    """Trees whose majority answer the verifier calls wrong."""
    voted = np.isfinite(r.score("vote")[r.leaf]) & r.judged & (r.reward > 0.5)
    return np.nan_to_num(r.mean(r.outcome, voted), nan=1.0) < 0.5


def part(r: Rollouts) -> Numbers:
    """Mean of each component of the outcome, and of what credit saw of it all."""
    if not r.judged.any():
        return {}
    out = {"part.taught": float(r.reward[r.judged].mean())}
    for name in sorted(r.source.score_names() - NOT_PARTS):
        values = r.score(name)[r.leaf][r.judged]
        if np.isfinite(values).any():
            out[f"part.{name}"] = float(np.nanmean(values))
    return out


def tools(r: Rollouts) -> Numbers:
    """Answers of the environment per rollout, and the share of calls that failed."""
    env = r.is_("role", "env")
    if not env.any() or not len(r.leaf):
        return {}
    calls = r.down(env.astype(np.int64))[r.leaf]
    return {"tools.calls": float(calls.mean()), "tools.failed": float(failed_calls(r)[env].mean())}


def failed_calls(r: Rollouts) -> Bools:
    """Environment nodes that answered a call with a failure (`notes["failed"]`)."""
    out = np.zeros(len(r.parent), np.bool_)
    env = np.flatnonzero(r.is_("role", "env"))
    out[env] = [bool(notes.get("failed")) for notes in r.source.notes(env)]
    return out


def lag(r: Rollouts) -> Numbers:
    """Versions that trained tokens are behind the weights in training; those of grafted branches by themselves."""
    version, at = r.flat("version")
    own = np.repeat(r.trainable, np.diff(at)) & (version >= 0)
    if not own.any():
        return {}
    behind = (r.newest - version).astype(np.float64)
    out = {"lag.mean": float(behind[own].mean()), "lag.most": float(behind[own].max()),
           "lag.stale": float((behind[own] > 0).mean())}  # fmt: skip
    old = own & np.repeat(grafted(r), np.diff(at))
    out["lag.replayed"] = float(old.sum() / own.sum())
    return out | ({"lag.replay_age": float(behind[old].mean())} if old.any() else {})


def grafted(r: Rollouts) -> Bools:
    """Nodes of branches that were stored and grafted."""
    return r.down(r.is_("birth", "graft").astype(np.int64)) > 0


def weight(r: Rollouts) -> Numbers:
    """Importance weights of whole rollouts, policy over sampling distribution: effective share and heaviest.

    From forests the policy is the one recorded in `logp`; training measures it with the trainer's own log-probs.
    """
    found = log_weights(r)
    known = np.isfinite(found) & r.judged
    return weight_numbers(found[known]) if known.any() else {}


def weight_numbers(log_w: Floats) -> Numbers:
    """The family's numbers from log-weights of rollouts."""
    heaviest = np.exp(log_w - log_w.max())
    return {"weight.ess": ess(log_w), "weight.most": float(1 / heaviest.sum())}


def log_weights(r: Rollouts) -> Floats:
    """Σ(logp − sampling_logprob) along each leaf's path over what was sampled; NaN where nothing was recorded."""
    sampling_logprob, at = r.flat("sampling_logprob")
    logp, other = r.flat("logp")
    if not len(sampling_logprob) or not np.array_equal(at, other):
        return np.full(len(r.leaf), np.nan)
    known = np.isfinite(sampling_logprob) & np.isfinite(logp) & np.repeat(r.trainable, np.diff(at))
    gap = np.where(known, logp.astype(np.float64) - np.where(known, sampling_logprob, 0), 0.0)
    seen = r.down(r.per_node("sampling_logprob", known.astype(np.float64)))[r.leaf]
    return np.where(seen > 0, r.down(r.per_node("sampling_logprob", gap))[r.leaf], np.nan)


def prefix(r: Rollouts) -> Numbers:
    """Tokens shared by several taught leaves: their share of the trained tokens and of the net pull |gain + loss|."""
    gain, at = r.flat("gain")
    loss, other = r.flat("loss")
    if not len(gain) or not np.array_equal(at, other):
        return {}
    pull = np.abs(gain.astype(np.float64) + loss)
    shared = np.repeat(r.below(r.trained) > 1, np.diff(at))
    taught = np.repeat(r.trainable & (r.below(r.trained) > 0), np.diff(at))
    total = float(pull[taught].sum())
    if total == 0.0:
        return {}
    return {"prefix.tokens": float(shared[taught].mean()), "prefix.pull": float(pull[taught & shared].sum() / total)}


def starved(r: Rollouts) -> Numbers:
    """Prompts of which no rollout came to its end because it was still running, aborted or out of budget."""
    if not len(r.leaf):
        return {}
    trees = r.count(np.ones(len(r.leaf), np.bool_)) > 0
    out = {"starved.prompts": float(starved_groups(r)[trees].mean())}
    out["starved.leaves"] = float(unfinished(r).mean())
    return out


def unfinished(r: Rollouts) -> Bools:
    """Leaves that something other than the policy or its length limit stopped."""
    return (r.is_("finish", "budget", "abort") | r.is_("status", "open", "paused"))[r.leaf]


def starved_groups(r: Rollouts) -> Bools:
    """Trees all of whose leaves are unfinished."""
    return (r.count(~unfinished(r)) == 0) & (r.count(unfinished(r)) > 0)


def seconds(r: Rollouts) -> Numbers:
    """Share of the engine's peak load that stood idle while the step grew; from the clock times of events."""
    share = idle(r.source.events())
    return {} if share is None else {"seconds.idle_share": share}


FAMILIES: dict[str, Callable[[Rollouts], Numbers]] = {
    "plain": plain, "groups": groups, "branches": branches, "lengths": lengths, "cut": cut, "failed": failed,
    "verdicts": verdicts, "vote": vote, "part": part, "tools": tools, "lag": lag, "weight": weight, "prefix": prefix,
    "starved": starved, "seconds": seconds,
}  # fmt: skip
BY_TRAINER = frozenset({"plain", "weight"})
"""Families whose numbers the training loop has from better sources."""
