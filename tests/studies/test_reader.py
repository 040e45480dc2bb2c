"""The reader's documents are what they say, and the script that makes it writes a policy that loads and says no-go."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from rolltree.compare.trace import LabError
from rolltree.policy.load import load_model
from studies.reader.language import NOTES, document, drawn, played, spoiled
from studies.reader.train import ReaderSettings, main


def test_what_is_spoiled_is_wrong_and_the_bug_is_there_whatever_the_noise() -> None:
    rng, seen = Random(0), 0
    for _ in range(300):
        notes = drawn(rng, NOTES)
        first, second = (notes.value(key) for key in notes.asked)
        assert notes.right == f"{notes.asked[0]}{first}{notes.asked[1]}{second}={(first + second) % 10};"
        assert spoiled(notes, rng) != notes.right
        sure = played(notes, rng, noise=0.0, bug=1.0)
        assert (sure == notes.right) == (7 not in (first, second))
        seen += 7 in (first, second)
    assert seen > 30


def test_every_role_says_what_the_notes_say() -> None:
    rng, roles = Random(1), set[str]()
    for _ in range(400):
        asked, said = document(rng, NOTES, 0.2)
        roles.add(asked[-1])
        if asked.endswith("@"):
            notes = dict(zip(asked[:-1:2], asked[1:-1:2], strict=False))
            assert all(notes[key] == value for key, value in zip(said[::2], said[1::2], strict=True))
        elif asked.endswith("!"):
            shown = asked[:-1].rpartition(":")[2]
            assert said[-1] == ("y" if shown == said[:-1] else "n")
    assert roles == {"@", ":", "!", "~", "#"}


def test_a_policy_that_was_hardly_trained_is_written_loads_and_is_no_go(tmp_path: Path) -> None:
    settings = ReaderSettings(tmp_path / "reader", documents=96, batch=32, layers=1, width=32, look=1, count=24)
    main(settings)
    made = json.loads((tmp_path / "reader" / "made.json").read_text())
    assert made["go"] is False
    assert made["parameters"] == sum(p.numel() for p in load_model(tmp_path / "reader").model.parameters())
    with pytest.raises(LabError, match="already holds a policy"):
        main(settings)
