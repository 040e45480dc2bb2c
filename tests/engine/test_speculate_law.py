"""Chi-square of speculative samples to a policy whose distribution is written down as a table."""

import asyncio
import itertools

import numpy as np
import pytest
import torch

from rolltree.engine.local import LocalEngine, engine, speculate
from rolltree.engine.local.speculate import Speculation
from rolltree.engine.local.speculate import tree as verify
from rolltree.engine.local.speculate.shapes import GuessWidths, Spine
from rolltree.engine.local.speculate.smaller import SmallerPolicy
from rolltree.engine.protocol import Request, Sampling
from rolltree.policy.slab import LayerShape
from rolltree.testing.engine import misfit, truncated
from tests.engine import tiny

VOCAB, BLOCK, MANY = 4, 3, 300
PREFIX = np.array([1, 3, 1, 2, 1, 3], np.int32)


class Codec:
    vocab_size, eos_id = VOCAB, 0

    def encode(self, text):
        return [int(c) for c in text]

    def decode(self, ids):
        return "".join(map(str, ids))


class Table:
    """A decoder whose logits depend on the last two tokens; it finds the one before through the cache and the mask."""

    vocab_size = hidden_size = VOCAB * VOCAB
    max_context, dtype, device = 64, torch.float64, torch.device("cpu")
    shapes = (LayerShape(1, 1, 1),)
    shares = False

    def __init__(self, seed, likeness=None):
        self.vocab_size = VOCAB
        table = torch.randn(VOCAB * VOCAB, VOCAB, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
        self.table = 1.5 * table if likeness is None else likeness.table + 0.5 * table
        self.embeddings = torch.eye(VOCAB, dtype=torch.float64)

    def extend(self, ids, start, slab, reach, branches=None, shared=None):
        rows, new = ids.shape
        columns = start[:, None] + torch.arange(new)
        if slab is None:
            before = torch.cat((ids[:, :1] * 0, ids[:, :-1]), 1)
            return torch.nn.functional.one_hot(before * VOCAB + ids, self.hidden_size).double()
        places = columns if branches is None else branches.positions
        seen = torch.arange(reach) <= columns[..., None] if branches is None else branches.seen
        kept = columns.clamp(max=slab.capacity)
        row = torch.arange(rows)
        slab.write(0, ids[..., None, None].double(), places[..., None, None].double(), row, kept)
        at = slab.values[0][:, 0, :reach, 0][:, None]
        others = seen & (at < places[..., None])
        nearest = torch.where(others, at, -1.0).argmax(-1)
        before = slab.keys[0][:, 0, :, 0].gather(1, nearest).long()
        before = torch.where(others.any(-1), before, 0)
        return torch.nn.functional.one_hot(before * VOCAB + ids, self.hidden_size).double()

    def logits(self, hidden):
        return hidden @ self.table

    def load(self, state): ...


TARGET = Table(0)


def hook(generated, logits):
    logits = logits.clone()
    logits[len(generated) % VOCAB] -= 1.5
    return logits


SETTINGS = {
    "policy": {},
    "hot, top-p": {"temperature": 1.5, "top_p": 0.7},
    "top-k": {"top_k": 2},
    "hook": {"hook": hook},
}
DRAFTERS = ["ngram", "suffix", "adjacent", "heads", "smaller"]
SHAPES = {"chain": GuessWidths((1, 1)), "tree": GuessWidths((3, 2)), "delayed": GuessWidths((1, 3)), "spine": Spine(8)}
PAIRS = [(d, s) for d in DRAFTERS for s in SHAPES if s != "spine" or d == "adjacent"]


def law(setting):
    """Log-probs of all blocks."""
    out = []
    for block in itertools.product(range(VOCAB), repeat=BLOCK):
        text, total = PREFIX.tolist(), 0.0
        for i, token in enumerate(block):
            logits = TARGET.table[text[-2] * VOCAB + text[-1]]
            if "hook" in setting:
                logits = setting["hook"](block[:i], logits)
            step = truncated(
                torch.log_softmax(logits, -1).numpy(), setting.get("temperature", 1.0), setting.get("top_k", 0),
                setting.get("top_p", 1.0),
            )  # fmt: skip
            total += step[token]
            text.append(token)
        out.append(total)
    return np.array(out)


@pytest.fixture
def tables(monkeypatch):
    monkeypatch.setattr(engine, "decoder_of", lambda *_: TARGET)
    monkeypatch.setitem(speculate.DRAFTERS, "smaller", lambda _: SmallerPolicy(Table(1, TARGET), VOCAB))
    monkeypatch.setitem(speculate.DRAFTERS, "heads", lambda target: Heads(target.decoder))


class Heads(speculate.spec.Heads):
    """It has learned a little from the start: from made up texts."""

    def __init__(self, decoder):
        super().__init__(decoder)
        chance = np.random.default_rng(0)
        for key in range(-40, 0):
            tokens = chance.integers(0, VOCAB, 32).tolist()
            states = decoder.extend(torch.tensor([tokens]), torch.tensor([0]), None, 32)[0].float()
            self._open[key] = [(states, tokens)]
            self.ended(key)
        for _ in range(20):
            assert self.learn()


def drawn(how):
    """Blocks of every setting, by the same seeds."""

    async def main():
        one = LocalEngine(tiny.llama(), Codec(), speculate=how, max_batch=64)
        runs = {
            name: [
                one.submit(Request(PREFIX, Sampling(BLOCK + 2, seed=seed, ignore_eos=True, **setting)))
                for seed in range(MANY)
            ]
            for name, setting in (SETTINGS | {"greedy": {"temperature": 0.0}}).items()
        }
        out = {name: np.array([s.actions for s in await asyncio.gather(*some)]) for name, some in runs.items()}
        await one.close()
        return out, one.speculation

    return asyncio.run(main())


def worst(blocks):
    return max(
        misfit(np.bincount(blocks[name][:, :BLOCK] @ VOCAB ** np.arange(BLOCK)[::-1], minlength=VOCAB**BLOCK), law(how))
        for name, how in SETTINGS.items()
    )


@pytest.mark.parametrize(("drafter", "shape"), PAIRS)
def test_the_law_is_the_policys(tables, drafter, shape):
    blocks, counts = drawn(Speculation(drafter, SHAPES[shape], least=0.0, rows=64))
    assert counts.accepted > 200
    assert worst(blocks) < 4
    text = PREFIX.tolist()
    for _ in range(BLOCK + 2):
        text.append(int(TARGET.table[text[-2] * VOCAB + text[-1]].argmax()))
    assert (blocks["greedy"] == text[len(PREFIX) :]).all()


@pytest.mark.parametrize("broken", ["mask", "order"])
def test_the_test_finds_a_verifier_that_is_wrong(tables, monkeypatch, broken):
    """TokenTree that see each other, or accepted ones that are not moved behind their text."""
    if broken == "mask":
        whole = verify._branches

        def blind(drafts, at, reach, device):
            right = whole(drafts, at, reach, device)
            seen = (
                torch.arange(reach) <= torch.from_numpy(at)[:, None, None] + torch.arange(right.seen.shape[1])[:, None]
            )
            return type(right)(torch.from_numpy(at)[:, None] + torch.arange(right.seen.shape[1]), seen)

        monkeypatch.setattr(verify, "_branches", blind)
    else:
        monkeypatch.setattr("rolltree.engine.local.core.settle", lambda *_: None)
    blocks, _ = drawn(Speculation("smaller", SHAPES["tree"], least=0.0, rows=64))
    if broken == "mask":
        assert worst(blocks) > 5
    else:  # it shows where a second tree reads what the first one left
        assert (blocks["policy"] != drawn(None)[0]["policy"]).any()
