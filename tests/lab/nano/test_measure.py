"""Pass@k against enumeration, and rollouts against an engine whose every word is known."""

import asyncio
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from pathlib import Path

import numpy as np
import pytest

from rolltree.engine.protocol import Sample
from rolltree.lab.nano.measure import measure, pass_at, rollout
from rolltree.lab.nano.table import MARK, write
from rolltree.lab.nano.tokenizer import CharacterCodec, build_tokenizer
from rolltree.task.nano import Arithmetic, Grid, Lookup, solve

CODEC = CharacterCodec(build_tokenizer(512))


@dataclass
class Speaker:
    """An engine that continues known prefixes with known words; `spoil` says for which seeds it writes 0 instead."""

    script: dict[str, str]
    spoil: object = lambda seed: False
    codec: CharacterCodec = CODEC
    asked: list[str] = field(default_factory=list)

    async def submit(self, request):
        prefix = self.codec.decode(request.prefix)
        self.asked.append(prefix)
        words = "0" if self.spoil(request.sampling.seed) else self.script[prefix]
        ids = np.asarray(self.codec.encode(words)[: request.sampling.max_tokens], dtype=np.int32)
        text = self.codec.decode(ids)
        stopped = next((stop for stop in request.sampling.stop if stop in text), "")
        cut = len(ids) < len(words)
        finish = "length" if cut else "stop" if stopped else "eos"
        zeros = np.zeros(len(ids), dtype=np.float32)
        return Sample(ids, zeros, zeros, np.zeros(len(ids), dtype=np.int32), finish, stopped)


def reference(task, count):
    """Prefix → the turn the expert writes there."""
    script = {}
    for item in islice(task.items("test"), count):
        so_far = item.prompt
        for who, text in asyncio.run(solve(task, item)).turns:
            if who == "policy":
                script[so_far] = text
            so_far += text
    return script


@pytest.mark.parametrize(("n", "right", "k"), [(6, 0, 3), (6, 2, 3), (6, 5, 2), (6, 6, 6), (5, 1, 5)])
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(n, right, k):
    subsets = list(combinations([1] * right + [0] * (n - right), k))
    assert pass_at(k, right, n) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_needs_k_samples():
    with pytest.raises(ValueError, match="pass@8 needs at least 8 samples"):
        pass_at(8, 1, 4)


@pytest.mark.parametrize("task", [Arithmetic(), Lookup(), Grid()], ids=lambda task: task.name)
def test_an_engine_that_knows_the_answers_is_always_right(task):
    item = next(task.items("test"))
    played = asyncio.run(rollout(Speaker(reference(task, 1)), task, item, seed=0))
    solution = asyncio.run(solve(task, item))
    assert played.verdict.score == 1
    assert played.text == solution.text
    assert played.tokens == sum(len(text) for who, text in solution.turns if who == "policy")


def test_policy_tokens_are_limited_over_all_turns():
    task = replace(Lookup(), max_tokens=6)
    item = next(task.items("test"))
    engine = Speaker(reference(Lookup(), 1))
    played = asyncio.run(rollout(engine, task, item, seed=0))
    assert (played.tokens, len(engine.asked)) == (6, 2)
    assert played.verdict.score == 0


def test_counts_become_pass_rates():
    """Right in exactly 3 of 4 samples: pass@1 is 3/4 and pass@2 is 1, with no spread between items."""
    task = Arithmetic()
    engine = Speaker(reference(task, 10), spoil=lambda seed: seed // 1000 == 1)
    got = asyncio.run(measure(engine, task, items=10, samples=4, k=2))
    assert (got.pass_1, got.pass_k, got.pass_1_interval, got.equal_groups) == (0.75, 1, 0, 0)
    assert (got.items, got.samples, got.k) == (10, 4, 2)


def test_the_table_replaces_only_what_was_measured(tmp_path: Path):
    task = Arithmetic()
    row = asyncio.run(measure(Speaker(reference(task, 4)), task, items=4, samples=8))
    page, data = tmp_path / "tasks.md", tmp_path / "tasks.json"
    page.write_text("# Tasks\n" + MARK + "old")
    write([row], page, data)
    text = page.read_text()
    assert text.startswith("# Tasks\n" + MARK)
    assert "old" not in text
    assert "| arithmetic | **2** | 100 ± 0 % | 100 ± 0 % | 100 % |" in text
    assert '"pass_1": 1.0' in data.read_text()
    page.write_text("no mark")
    with pytest.raises(ValueError, match="has no line"):
        write([row], page, data)
