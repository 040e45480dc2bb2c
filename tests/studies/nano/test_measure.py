"""Pass rates against a policy whose every word and chance are known."""

import asyncio
from itertools import islice
from pathlib import Path

import pytest

from rolltree.compare.trace import LabError
from rolltree.engine.tabular import Letters, TabularEngine
from rolltree.task.nano import Arithmetic, Grid, Lookup, solve
from studies.lab.nano.measure import measure
from studies.lab.nano.tokenizer import CHARACTERS
from studies.nano.table import MARK, write

CODEC = Letters("".join(CHARACTERS), eos_id=len(CHARACTERS))


def expert(task, count, right=1.0):
    """An engine that writes what the expert would, but ends before its first word with chance 1 - right."""
    script = {}
    for item in islice(task.items("test"), count):
        so_far = item.prompt
        for who, text in asyncio.run(solve(task, item)).turns:
            if who == "policy":
                script |= {so_far + text[:k]: text[k] for k in range(len(text))}
            so_far += text
    prompts = {item.prompt for item in islice(task.items("test"), count)}

    def policy(prefix):
        written = CODEC.decode(prefix)
        row = [0.0] * CODEC.vocab_size
        if written in script:
            row[CODEC.encode(script[written])[0]] = right if written in prompts else 1.0
        row[CODEC.eos_id] = 1.0 - sum(row)
        return row

    return TabularEngine(policy, CODEC)


@pytest.mark.parametrize("task", [Arithmetic(), Lookup(), Grid()], ids=lambda task: task.name)
def test_a_policy_that_knows_the_answers_is_always_right(task):
    got = asyncio.run(measure(expert(task, 3), task, items=3, samples=2, k=2))
    assert (got.pass_1, got.pass_k, got.pass_1_interval, got.equal_groups) == (1, 1, 0, 1)
    texts = [asyncio.run(solve(task, item)).turns for item in islice(task.items("test"), 3)]
    own = sum(len(text) for turns in texts for who, text in turns if who == "policy") / 3
    assert own - 1e-9 <= got.tokens <= own + 1 + 1e-9  # an end token counts where the policy writes one


def test_pass_rates_are_those_of_the_policy():
    """Right with chance 0.6: pass@1 is 0.6 and pass@3 is 1 - 0.4³ within five standard errors."""
    task = Arithmetic()
    got = asyncio.run(measure(expert(task, 60, right=0.6), task, items=60, samples=8, k=3))
    assert got.pass_1 == pytest.approx(0.6, abs=5 * got.pass_1_interval / 1.96)
    assert got.pass_k == pytest.approx(1 - 0.4**3, abs=5 * got.pass_k_interval / 1.96)
    assert (got.items, got.samples, got.k) == (60, 8, 3)
    assert got.pass_1_interval == pytest.approx(1.96 * (0.24 / 8 / 60) ** 0.5, rel=0.4)


def test_too_few_samples_are_refused_before_work():
    with pytest.raises(LabError, match="pass@8 needs at least 8 samples"):
        asyncio.run(measure(expert(Arithmetic(), 1), Arithmetic(), items=1, samples=4))


def test_the_table_replaces_only_what_was_measured(tmp_path: Path):
    task = Arithmetic()
    row = asyncio.run(measure(expert(task, 4), task, items=4, samples=8))
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
