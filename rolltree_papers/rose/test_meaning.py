"""ROSE's score: synonyms against real alternatives, the sign trap, and where the embedding table comes from."""

from __future__ import annotations

import asyncio
from itertools import islice

import numpy as np
import pytest

from rolltree.engine.protocol import Embedder
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.generate.runner import grow
from rolltree.generate.signals import Signal
from rolltree.generate.stems import BySignal, OneAtATime
from rolltree.generate.strategy import NeedsError
from rolltree.task.protocol import Item, Verdict
from rolltree.testing.strategy import check_strategy
from rolltree.testing.tiny import EMBEDDINGS, SpellTask, tiny_engine
from rolltree.tree import Tree
from rolltree.tree.node import Top
from rolltree_papers.rose import MeaningfulDoubt, literal_divergence
from tests.engine import tiny

SCORER = MeaningfulDoubt(5)
CODEC = Letters("?abcdefgh", eos_id=9)


def test_keeps_the_strategy_contract() -> None:
    check_strategy(OneAtATime(4, SCORER))


def test_the_literal_form_is_the_papers_double_sum() -> None:
    rng = np.random.default_rng(3)
    ids = rng.permuted(np.tile(np.arange(27, dtype=np.int32), (6, 1)), axis=1)[:, :4]
    logp = np.log(rng.dirichlet(np.ones(5), 6)[:, :4]).astype(np.float32)
    unit = EMBEDDINGS / np.linalg.norm(EMBEDDINGS, axis=1, keepdims=True)
    brute = [
        -sum(
            np.exp(logp[t, i] + logp[t, j]) * float(unit[ids[t, i]] @ unit[ids[t, j]])
            for i in range(4) for j in range(4) if i != j
        )
        for t in range(6)
    ]  # fmt: skip
    assert literal_divergence(logp, ids, EMBEDDINGS) == pytest.approx(brute, abs=1e-6)


def synonyms() -> np.ndarray:
    """Tokens 1 to 4 mean the same (cosine 0.95 or more), 5 to 8 differ; all cosines are positive."""
    table = np.abs(np.random.default_rng(1).normal(size=(10, 12))) * 0.05
    table[1:5, 0] += 1.0
    for token in range(5, 9):
        table[token, token - 4] += 1.0
    return table.astype(np.float32)


def policy(prefix: tuple[int, ...]) -> list[float]:
    """Six turns: hesitation between synonyms, in turn one between real alternatives, then the end."""
    row = np.zeros(10)
    done = len(prefix) - 1
    if done in (0, 1, 3, 4):
        row[1:5] = 0.25
    elif done == 2:
        row[5:9] = (0.4, 0.3, 0.2, 0.1)
    else:
        row[9] = 1.0
    return list(row)


class Meant(SpellTask):
    """The answer is what was said up to synonyms."""

    def items(self, split, seed=0):  # type: ignore[no-untyped-def]
        for i, _ in enumerate(super().items(split, seed)):
            yield Item(f"x{i}", "?", "any")

    async def verify(self, item: Item, state: object, text: str) -> Verdict:
        return Verdict(1.0, answer="".join("s" if c in "abcd" else c for c in text))


def answers(scorer: object, restart: float = 0.0) -> tuple[float, list[int]]:
    """Mean distinct answers of six leaves, and the positions forked at."""
    task = Meant(stop=(), max_tokens=8)
    engine = TabularEngine(policy, CODEC, embeddings=synonyms())
    items = islice(task.items("train"), 30)
    forest = asyncio.run(grow(OneAtATime(6, scorer, restart), engine, task, items))  # type: ignore[arg-type]
    places = [e.numbers["position"] for tree in forest for e in tree.events if e.kind == "select"]
    return float(np.mean([len({leaf.notes["answer"] for leaf in t.leaves()}) for t in forest])), places


def test_forks_go_where_meanings_part_and_give_more_answers_than_entropy_alone() -> None:
    kept, at = answers(MeaningfulDoubt(5))
    by_entropy, _ = answers(BySignal(Signal("entropy:top", 5)))
    assert at.count(3) >= 30  # the prompt and two tokens stay; every tree's first fork is there
    assert kept > by_entropy + 0.3


def test_the_published_sign_seeks_certain_tokens_where_cosines_are_positive() -> None:
    _, at = answers(MeaningfulDoubt(5, literal=True))
    first = at[::5]
    assert set(first) == {6}  # the end of the text, which is certain


def test_an_engine_without_a_table_is_refused_by_name() -> None:
    task = SpellTask()
    engine = TabularEngine(lambda _: [1 / 27] * 27, Letters("abcdefghijklmnopqrstuvwxy!", eos_id=26))
    with pytest.raises(NeedsError, match="needs 'embeddings', which the engine TabularEngine does not offer"):
        asyncio.run(grow(OneAtATime(4, SCORER), engine, task, islice(task.items("train"), 1)))


@pytest.mark.parametrize("model", [tiny.llama, tiny.gpt2])
def test_the_local_engine_shows_the_models_own_table(model) -> None:  # type: ignore[no-untyped-def]
    async def run() -> None:
        engine = tiny.engine(model())
        assert isinstance(engine, Embedder)
        shown = await engine.embeddings()
        assert shown is await engine.embeddings()
        weight = model().get_input_embeddings().weight.detach().numpy()
        assert np.array_equal(shown, weight[: engine.codec.vocab_size])
        state = {name: value * 2 for name, value in model().state_dict().items()}
        await engine.update_weights(state, engine.version + 1)
        assert np.array_equal(await engine.embeddings(), 2 * shown)
        await engine.close()

    asyncio.run(run())


def test_a_score_needs_alternatives_on_record() -> None:
    tree = Tree("t", [0])
    ids, logp = np.zeros((2, 5), np.int32), np.log(np.full((2, 5), 0.2, np.float32))
    node = tree.extend(0, [1, 2], top=Top(ids, logp))
    assert MeaningfulDoubt(5).score(node, synonyms()) == pytest.approx([0, 0], abs=1e-6)
    assert isinstance(tiny_engine(), Embedder)
