"""What `dots` promises beside what all of its kind do."""

import pytest

from rolltree_papers.dots import fit_attention
from rolltree_papers.dots.study import predicted


def test_attention_predicts_what_texts_tell_and_beats_what_was_last_seen():
    ours, seen, _ = predicted(0, steps=10)
    assert ours > seen
    assert ours > 0.7
    assert fit_attention(["a"], [0.3]).predict(["b"]) == pytest.approx(0.3)
