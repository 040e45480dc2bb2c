"""Random trees of token ids and of latents, and equality that misses nothing."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from rolltree.tree import Forest, Top, Tree
from rolltree.tree.node import BIRTHS, DTYPE, FINISHES, PER_ACTION, ROLES

KINDS = ("ids", "latents")
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, 3.4e38, -0.1], np.float32)


def actions(rng: np.random.Generator, kind: str, count: int) -> np.ndarray:
    if kind == "ids":
        return rng.integers(0, 50_000, count).astype(np.int32)
    return rng.standard_normal((count, 3)).astype(np.float32)


def values(rng: np.random.Generator, name: str, count: int) -> np.ndarray:
    dtype = np.dtype(DTYPE[name])
    if dtype == np.bool_:
        return rng.random(count) < 0.5
    if dtype == np.int32:
        return rng.integers(-1, 9, count).astype(np.int32)
    numbers = rng.standard_normal(count).astype(np.float32)
    return np.where(rng.random(count) < 0.2, rng.choice(SPECIAL, count), numbers).astype(np.float32)


def top(rng: np.random.Generator, count: int, k: int = 2) -> Top:
    ids = rng.integers(0, 99, (count, k)).astype(np.int32)
    return Top(ids, values(rng, "logp", count * k).reshape(count, k))


def arrays(rng: np.random.Generator, count: int) -> dict[str, Any]:
    given: dict[str, Any] = {name: values(rng, name, count) for name in PER_ACTION if rng.random() < 0.5}
    if rng.random() < 0.3:
        given["top"] = top(rng, count, int(rng.integers(1, 4)))
    return given


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.just("$float"), inner, max_size=3)
    ),
    max_leaves=6,
)
FATES = ("", "trained", "dropped: x")
WORDS = st.text(max_size=5)


@st.composite
def trees(draw: st.DrawFn, id: str = "t0", kinds: tuple[str, ...] = KINDS) -> Tree:
    """A tree of up to a dozen nodes with every field used now and then, cut and pruned here and there."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(kinds))
    size = st.integers(0, 4)
    tree = Tree(id, actions(rng, kind, draw(size)), task=draw(WORDS), item=draw(WORDS))
    tree.notes = draw(st.dictionaries(WORDS, JSON, max_size=2))
    for _ in range(draw(st.integers(0, 8))):
        parent = draw(st.sampled_from([n for n in tree if n.status not in ("pruned", "failed")]))
        count = draw(size)
        node = tree.extend(
            parent, actions(rng, kind, count), role=draw(st.sampled_from(ROLES)), level=draw(st.integers(0, 3)),
            actor=draw(st.sampled_from(["policy", "env", "teacher"])), forced=draw(st.booleans()),
            birth=draw(st.sampled_from(BIRTHS)), status=draw(st.sampled_from(["open", "paused", "done"])),
            finish=draw(st.none() | st.sampled_from(FINISHES)), usage=draw(st.sampled_from(FATES)),
            scores=draw(st.dictionaries(WORDS, st.floats(), max_size=2)), state_key=draw(st.none() | WORDS),
            state=draw(JSON), notes=draw(st.dictionaries(WORDS, JSON, max_size=2)), **arrays(rng, count),
        )  # fmt: skip
        if draw(st.booleans()):
            node.trainable = not node.trainable
        if draw(st.booleans()):
            tree.cut(node, draw(st.integers(0, len(node))))
    if draw(st.booleans()):
        tree.prune(draw(st.sampled_from(list(tree))), draw(WORDS), at=draw(st.floats(0, 9)), number=draw(JSON))
    return tree


@st.composite
def forests(draw: st.DrawFn) -> Forest:
    """Up to three trees; ids and latents may stand in one forest."""
    return Forest([draw(trees(f"t{i}")) for i in range(draw(st.integers(0, 3)))])


def same(a: Any, b: Any) -> bool:
    """Equality in which NaN equals NaN and 1 differs from 1.0, True and an array."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, Top):
        return same(a.ids, b.ids) and same(a.logp, b.logp)
    if isinstance(a, float):
        return a == b or (np.isnan(a) and np.isnan(b))
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a.items(), b.items(), strict=True))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def assert_same_tree(a: Tree, b: Tree, *, events: bool = True) -> None:
    """Every field of every node, the order of nodes and siblings, the events, and the id the next node would get."""
    assert (a.id, a.task, a.item) == (b.id, b.task, b.item)
    assert same(a.notes, b.notes)
    assert list(a.nodes) == list(b.nodes)
    assert a.root.id == b.root.id
    for x, y in zip(a.nodes.values(), b.nodes.values(), strict=True):
        for name in x.__slots__:
            one, other = getattr(x, name), getattr(y, name)
            assert same(one, other), f"{name} of node {x.id}: {one!r} became {other!r}"
    if events:
        assert len(a.events) == len(b.events)
        for e, f in zip(a.events, b.events, strict=True):
            assert (e.kind, e.node, e.why, e.at) == (f.kind, f.node, f.why, f.at)
            assert same(dict(e.numbers), dict(f.numbers))
    # What grows next must get the same id, so that a resumed run goes on like the one that was stopped.
    assert max(a.nodes) == max(b.nodes)
    if b.root.status != "pruned":
        assert b.extend(b.root, []).id == max(a.nodes) + 1
