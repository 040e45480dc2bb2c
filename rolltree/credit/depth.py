"""Credit depth by depth: the branches that are alive at one action of a tree are compared with one another."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np

from rolltree.credit import partition
from rolltree.credit.advantage import Advantage, Credit, CreditError
from rolltree.credit.backup import backup
from rolltree.credit.normalise import Ddof, centred, scaled, spread_of
from rolltree.credit.outcome import outcomes
from rolltree.credit.registry import register, resolve
from rolltree.tree.table import Bools, Floats, Ints, Table

Density = Literal["mean", "sum"]


@register("depthwise", paper="BranchGRPO, arXiv:2509.06040", family="tree")
@dataclass(frozen=True, slots=True)
class Depthwise:
    """A(action) = (V − mean)/std over the branches of its tree that are alive at its depth (BranchGRPO).

    V is the mean outcome below a branch, or with `backup="likely"` the mean over children weighted by the softmax of
    the log-prob of their first action (the paper's path-probability weighting; of many dimensions the mean per
    dimension, as released). Depth counts actions, so a run without a fork has one too. `scale="leaf_std"` divides by
    the tree's deviation over leaves: in a balanced tree that is exactly the gradient of plain terminal advantages
    averaged over what leaves share. One branch alone gets 0.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward"})
    backup: Literal["mean", "likely"] = "mean"
    """What a branch is worth: the mean of its leaves, or its children weighted by how likely they were."""
    density: Density = "mean"
    """How a first action of many dimensions enters that softmax: by its mean log-density per dimension, as released, or
    by the sum over them, which nearly chooses the likeliest child."""
    scale: Literal["depth_std", "leaf_std", "none"] = "depth_std"
    """What differences are divided by: the deviation at their depth, that of the tree's leaves, or nothing."""
    ddof: Ddof = 1
    """1 divides the variance by branches − 1, as torch does, 0 by branches."""
    eps: float = 1e-8
    """Added to the deviation."""
    clip: float = 5.0
    """Largest size of an advantage; 0 = none."""

    def __call__(self, table: Table) -> Advantage:
        """Advantages per action."""
        if self.scale not in ("depth_std", "leaf_std", "none"):
            raise CreditError(f'depthwise: scale is {self.scale!r}; choose "depth_std", "leaf_std" or "none"')
        if self.density not in get_args(Density):
            raise CreditError(f"depthwise: density is {self.density!r}; choose {' or '.join(get_args(Density))}")
        leaf = outcomes(table)
        value = likely(table, leaf, self.density) if self.backup == "likely" else backup(table, leaf, "leaf_mean")
        alive = np.repeat(table.trainable & np.isfinite(value), table.length)
        values = np.where(alive, np.repeat(np.nan_to_num(value), table.length), 0.0)
        group = np.where(alive, depths(table), -1)
        _, numbered = np.unique(group, return_inverse=True)
        group = np.where(alive, numbered, -1)
        out = centred(values, group, "mean")
        if self.scale == "depth_std":
            flat = partition.spread(spread_of(values, group, "std", ddof=self.ddof), group, 0.0) < 1e-6
            out = scaled(out, values, group, "std", ddof=self.ddof, eps=self.eps)
            out[flat] = 0.0
        elif self.scale == "leaf_std":
            own = partition.leaf_groups(table, "tree")
            unit = spread_of(np.where(own >= 0, leaf, 0.0), own, "std", ddof=self.ddof)
            unit = np.append(unit, np.full(max(0, len(table.trees) - len(unit)), np.nan))
            per_action = np.repeat(unit[table.tree], table.length) + self.eps
            usable = np.isfinite(per_action) & (per_action > 1e-6)
            out = np.divide(out, per_action, out=np.zeros(len(out)), where=usable)
        return Advantage(action=np.clip(out, -self.clip, self.clip) if self.clip else out)


def places(table: Table) -> Ints:
    """Per action, how many actions stand before it on its path."""
    before = np.rint(table.down(table.length.astype(np.float64))).astype(np.int64) - table.length
    return np.repeat(before, table.length) + np.arange(table.actions) - np.repeat(table.start, table.length)


def depths(table: Table) -> Ints:
    """Per action, a number for its tree and its place."""
    place = places(table)
    return np.repeat(table.tree, table.length) * (int(place.max(initial=0)) + 1) + place


def likely(table: Table, leaf: Floats, density: Density = "mean") -> Floats:
    """V per node: the children's, weighted by the softmax of the log-prob of their first action."""
    value = np.full(len(table.nodes), np.nan)
    value[table.leaf[table.live]] = leaf[table.live]
    children: dict[int, list[int]] = {}
    for row, above in enumerate(table.parent.tolist()):
        children.setdefault(above, []).append(row)
    for row in range(len(table.nodes) - 1, -1, -1):
        below = [c for c in children.get(row, []) if np.isfinite(value[c])]
        if not below:
            continue
        first = [_first_logp(table, c, density) for c in below]
        weight = np.exp(np.array(first) - max(first))
        value[row] = float((weight * value[below]).sum() / weight.sum())
    return value


def _first_logp(table: Table, row: int, density: Density) -> float:
    node = table.nodes[row]
    if node.logp is None or not len(node) or not np.isfinite(node.logp[0]):
        return 0.0
    return float(node.logp[0]) / (np.size(node.actions[0]) if density == "mean" else 1)


def dropped(table: Table, keep: Bools, advantage: Advantage) -> Advantage:
    """An advantage without the actions that are not kept; their weight stays, so the others count as before."""
    use = keep.astype(np.float64)
    action = None if advantage.action is None else advantage.action * use
    factor = use if advantage.factor is None else advantage.factor * use
    return Advantage(advantage.leaf, advantage.node, action, factor, advantage.counted)


# Branches left out of the gradient, after credit was given with all of them (BranchGRPO, arXiv:2509.06040).


@register("pruned_branches", paper="BranchGRPO, arXiv:2509.06040", family="tree")
@dataclass(frozen=True, slots=True)
class PrunedBranches:
    """The base's advantages, less some edges: what is sampled, scored and compared stays whole.

    Depth: the `count` actions from place `first` on (counted from the prompt's end) are left out; `first` may vary over
    the run, which is the paper's sliding. Width, behind the last fork only: "best" keeps the better half of the leaves
    below one fork, "extremes" the best and the worst quarter of all leaves of a tree.
    """

    base: Credit | str = field(default="depthwise")
    """The credit whose advantages are pruned."""
    first: int = 0
    """The first place that depth pruning leaves out."""
    count: int = 0
    """How many places it leaves out; 0 = none."""
    width: Literal["none", "best", "extremes"] = "none"
    """Which leaves are kept behind the last fork: all, the best of each fork, or a tree's best and worst."""
    ratio: float = 0.5
    """Share of the leaves that is kept."""

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's advantage with edges dropped."""
        if self.width not in ("none", "best", "extremes"):
            raise CreditError(f'pruned_branches: width is {self.width!r}; choose "none", "best" or "extremes"')
        keep = np.ones(table.actions, np.bool_)
        if self.count:
            prompt = np.array([len(tree.root) for tree in table.trees], np.int64)
            place = places(table) - np.repeat(prompt[table.tree], table.length)
            keep &= ~((place >= self.first) & (place < self.first + self.count))
        if self.width != "none":
            keep &= self._wide(table)
        return dropped(table, keep, resolve(self.base)(table))

    def _wide(self, table: Table) -> Bools:
        """Per action: not of a leaf that goes; what stands above the last fork always stays."""
        reward, keep = outcomes(table), np.ones(len(table.nodes), np.bool_)
        pools: dict[int, list[int]] = {}
        for i in np.flatnonzero(table.live).tolist():
            row = int(table.leaf[i])
            pools.setdefault(int(table.parent[row] if self.width == "best" else table.tree[row]), []).append(i)
        for pool in pools.values():
            order = sorted(pool, key=lambda i: (-reward[i], i))
            count = max(1, round(self.ratio * len(order)))
            best = count if self.width == "best" else (count + 1) // 2
            stay = {*order[:best], *order[len(order) - (count - best) :]} if count < len(order) else set(order)
            for i in pool:
                keep[table.leaf[i]] = i in stay
        return np.repeat(keep, table.length)


@register("best_leaf", paper="Dynamic-TreeRPO, arXiv:2509.23352 (reconstructed)", family="tree")
@dataclass(frozen=True, slots=True)
class BestLeaf:
    """The base's advantages, and `weight` more on the path of each tree's best leaf if its outcome is at least `floor`.

    Dynamic-TreeRPO's LayerTuning pulls each layer's prediction towards the one on the best path; for Gaussian steps
    that is the gradient of the best path's log-prob, up to the step's variance (reconstructed: the layers' weights are
    one here). Imitating the best of one's own group can collapse onto it.
    """

    base: Credit | str = field(default="depthwise")
    """The credit that is added to."""
    weight: float = 0.1
    """Advantage that the best leaf's path gets on top."""
    floor: float = 0.5
    """Least outcome of a leaf that is imitated."""

    @property
    def needs(self) -> frozenset[str]:
        """The base's."""
        return resolve(self.base).needs

    def __call__(self, table: Table) -> Advantage:
        """The base's, and more for the best."""
        advantage = resolve(self.base)(table)
        reward = np.where(table.live, outcomes(table), -np.inf)
        more = np.zeros(len(table.nodes))
        for tree in range(len(table.trees)):
            mine = np.flatnonzero(table.leaf_tree == tree)
            if not len(mine) or reward[mine].max() < self.floor:
                continue
            for leaf in mine[reward[mine] == reward[mine].max()].tolist():  # all of several that are equally good
                row = int(table.leaf[leaf])
                while row >= 0:
                    more[row] = self.weight
                    row = int(table.parent[row])
        bonus = np.repeat(more, table.length)
        action = bonus if advantage.action is None else advantage.action + bonus
        return Advantage(advantage.leaf, advantage.node, action, advantage.factor, advantage.counted)
