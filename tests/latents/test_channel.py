"""Actions of any shape: what is joined, what is refused, and that nothing becomes an integer in silence."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rolltree.engine.protocol import EngineError, token_codec
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.engine.texts import actions_of
from rolltree.generate.branches import Branches
from rolltree.generate.runner import open_hand
from rolltree.generate.setting import HandError
from rolltree.latents.denoiser import ChannelError, LatentChannel
from rolltree.latents.task import Digits
from rolltree.policy.language import LanguagePolicy
from rolltree.policy.load import load_model
from rolltree.policy.packed import PackError, pack
from rolltree.task.items import TaskError
from rolltree.task.protocol import Item
from rolltree.tree import Tree
from rolltree.tree.node import TreeError, join_actions
from rolltree.tree.store.parquet import load, save
from rolltree.tree.table import table
from tests.latents.tiny import grown, items, tiny_engine


def test_actions_of_one_shape_are_one_array_and_of_several_one_object_each() -> None:
    ids, latents = np.array([3], np.int32), np.ones((2, 5), np.float32)
    assert join_actions([ids, np.array([4], np.int64)]).tolist() == [3, 4]
    mixed = join_actions([ids, latents])
    assert len(mixed) == 3
    assert mixed[0] == 3
    assert mixed[1].dtype == np.float32
    assert len(join_actions([mixed[:1], mixed[1:]])) == 3
    assert join_actions([np.zeros(0, np.int32), latents]).shape == (2, 5)


def test_a_prefix_of_tokens_and_latents_keeps_both() -> None:
    tree = Tree("t", [7])
    node = tree.extend(tree.root, np.full((3, 5), 0.5, np.float32))
    prefix = tree.prefix(node)
    assert len(prefix) == 4
    assert prefix[0] == 7
    assert float(prefix[3][0]) == 0.5
    with pytest.raises(TreeError, match="float32"):
        tree.append(tree.extend(tree.root, [1, 2]), np.ones(2, np.float32))


def _letters() -> TabularEngine:
    return TabularEngine(lambda _: [0.4, 0.4, 0.2], Letters("ab$", 2), max_context=32)


def test_a_language_engine_refuses_latents_and_labels_aloud() -> None:
    async def run() -> None:
        engine = _letters()
        hand = open_hand(engine, Digits())
        with pytest.raises(EngineError, match="writes tokens"):
            hand.plant(items(1)[0])
        tree = hand.plant(Item("t", "ab", 1))
        mine = hand.on(tree)
        with pytest.raises(EngineError, match=r"float32, shape \(2, 65\)"):
            await mine.force(tree.root, np.ones((2, 65), np.float32))
        with pytest.raises(EngineError, match="float64"):
            await mine.force(tree.root, [0.5, 1.5])  # pyright: ignore[reportArgumentType]
        assert actions_of(engine, np.array([0, 1], np.int64), "ids").dtype == np.int32
        await engine.close()

    asyncio.run(run())


@pytest.mark.parametrize("given", ["seven", -1, 10, 2.5, None, True, [[1.0]]])
def test_a_denoiser_refuses_what_is_no_label(given: Any) -> None:
    with pytest.raises(ChannelError, match="from 0 to 9"):
        LatentChannel((8, 8), 10).encode(given)


def test_a_denoiser_refuses_latents_of_another_width_and_readers_of_tokens() -> None:
    engine = tiny_engine()
    with pytest.raises(ChannelError, match="no latents of this model"):
        engine.codec.encode(np.zeros((2, 64), np.float32))
    with pytest.raises(EngineError, match="this method reads tokens"):
        token_codec(engine, "this method")


def test_a_language_policy_refuses_trees_of_latents() -> None:
    view = table(grown(Branches(first=2)))
    packed = pack(view, view.loss_mask)
    with pytest.raises(PackError, match="token ids"):
        LanguagePolicy(load_model("nano").model).read(packed)


def test_forks_without_noise_are_refused() -> None:
    async def run() -> None:
        engine = tiny_engine()
        hand = open_hand(engine, Digits())
        mine = hand.on(hand.plant(items(1)[0]))
        first = (await mine.extend(mine.tree.root, max_tokens=3))[0]
        with pytest.raises(HandError, match="nothing is drawn"):
            await mine.extend(first, n=2, temperature=0.0)
        # The last step has no noise at any temperature.
        last = (await mine.extend(first, max_tokens=engine.steps - 3))[0]
        with pytest.raises(HandError, match="nothing is drawn"):
            await mine.extend(last, n=2)
        assert len(await mine.extend(last)) == 1
        with pytest.raises(HandError, match="nothing is drawn"):
            await mine.fork(last)
        await engine.close()

    asyncio.run(run())


def test_forced_latents_go_on_from_there_and_carry_their_density() -> None:
    async def run() -> None:
        engine = tiny_engine()
        hand = open_hand(engine, Digits())
        mine = hand.on(hand.plant(items(1)[0]))
        noise = np.append(np.zeros(64), 1.0).astype(np.float32)[None]
        node = await mine.force(mine.tree.root, noise, role="policy")
        assert node is not None
        assert node.logp is not None
        assert float(node.logp[0]) == pytest.approx(-32 * np.log(2 * np.pi), rel=1e-5)
        grown = await mine.extend(node)
        assert len(mine.tree.prefix(grown[0])) == engine.steps + 2
        await engine.close()

    asyncio.run(run())


def test_latents_survive_parquet(tmp_path: Path) -> None:
    forest = grown(Branches((1, 3), first=2), 2)
    back = load(save(forest, tmp_path / "f", states="drop"))
    for tree in forest:
        for node in tree:
            other = back[tree.id][node.id].actions
            assert other.dtype == node.actions.dtype
            assert np.array_equal(other, node.actions)
            assert np.array_equal(back[tree.id].prefix(node.id)[-1], tree.prefix(node)[-1])


def test_digits_judges_images_and_refuses_other_rewards() -> None:
    verdict = asyncio.run(Digits("symmetric").verify(items(1)[0], None, np.zeros((8, 8), np.float32)))
    assert verdict.score == verdict.parts["symmetric"] == 1.0
    assert set(verdict.parts) == {"label", "compressible", "symmetric", "preferred"}
    assert verdict.parts["compressible"] > 0.8
    noise = np.random.default_rng(0).uniform(-1, 1, (8, 8)).astype(np.float32)
    rough = asyncio.run(Digits().verify(items(1)[0], None, noise))
    assert rough.parts["compressible"] < 0.4
    with pytest.raises(TaskError, match="no reward 'nice'"):
        Digits("nice")
