"""The loops by hand: they run, they are as short as they claim, and what the documentation quotes is what they do."""

import asyncio
import re
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]


def example(name: str) -> Any:
    return runpy.run_path(str(ROOT / "examples" / name))["main"]


def test_grpo_by_hand_updates_the_policy_and_its_engine(monkeypatch):
    made = []
    main = example("grpo_by_hand.py")
    make = main.__globals__["LocalEngine"]
    monkeypatch.setitem(main.__globals__, "LocalEngine", lambda model: made.append((model, make(model))) or made[-1][1])
    rewards = asyncio.run(main(steps=2, prompts=3, group=4))
    assert len(rewards) == 2
    assert np.isfinite(rewards).all()
    ((trained, engine),) = made
    assert engine.version == 2
    fresh = main.__globals__["load_model"]("nano").model.state_dict()
    assert any(not torch.equal(value, fresh[name]) for name, value in trained.model.state_dict().items())


def test_tree_by_hand_reads_what_is_shared_once():
    packed, flat = asyncio.run(example("tree_by_hand.py")(prompts=2, forks=3))
    assert 0 < packed < 0.75 * flat


@pytest.mark.parametrize("name", ["grpo_by_hand.py", "tree_by_hand.py"])
def test_they_are_short_and_quoted_as_they_are(name):
    lines = (ROOT / "examples" / name).read_text().splitlines()
    assert len(lines) <= 45
    plain = {line.strip() for line in lines}
    for page in ("README.md", "docs/architecture.md"):
        text = (ROOT / page).read_text()
        section = text[text.index("## How it works") :]
        blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[:2]
        quoted = [line.strip() for line in blocks[name == "tree_by_hand.py"].splitlines()]
        assert set(quoted) <= plain, page
