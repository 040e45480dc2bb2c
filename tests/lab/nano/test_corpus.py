"""The corpus teaches the policy its own words and nothing from the test split."""

import asyncio
from collections import Counter

import numpy as np
import pytest

from rolltree.task.items import split_of
from rolltree.task.registry import NANO
from studies.lab.nano.corpus import NOISE, corpus, demonstrations, document
from studies.lab.nano.tokenizer import CHARACTERS, CharacterCodec, build_tokenizer
from studies.lab.nano.train import IGNORED, PretrainSettings, batches, build_model

CODEC = CharacterCodec(build_tokenizer(512))


def test_every_character_is_one_token_and_comes_back():
    text = "".join(CHARACTERS) + "  two  spaces , and n't . punctuation\n\n"
    ids = CODEC.encode(text)
    assert len(ids) == len(text)
    assert CODEC.decode(ids) == text


def test_special_tokens_cannot_be_written_as_text():
    assert CODEC.eos_id not in CODEC.encode("<eos>")
    assert len(CODEC.encode("<eos>")) == 5


def test_only_the_policys_own_turns_and_the_end_are_taught():
    played = asyncio.run(demonstrations("lookup", 20, seed=0))
    for transcript in played:
        made = document(transcript, CODEC)
        taught = CODEC.decode(made.tokens[made.own])
        assert taught == "".join(text for who, text in transcript.turns if who == "policy")
        assert made.tokens[-1] == CODEC.eos_id
        assert CODEC.decode(made.tokens) == transcript.item.prompt + transcript.text


def test_demonstrations_come_from_the_training_split():
    for transcript in asyncio.run(demonstrations("arithmetic", 200, seed=0)):
        assert split_of(f"arithmetic/{transcript.item.prompt}") == "train"


def test_the_corpus_covers_all_tasks_and_repeats_under_its_seed():
    assert set(NOISE) == set(NANO)
    one, two = asyncio.run(corpus(CODEC, 300, seed=1)), asyncio.run(corpus(CODEC, 300, seed=1))
    assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(one, two, strict=True))
    assert len(one) == pytest.approx(300, abs=10)


def test_batches_hold_every_taught_token_once(tmp_path):
    documents = asyncio.run(corpus(CODEC, 130, seed=0))[:128]
    settings = PretrainSettings(out=tmp_path)
    counted = Counter()
    for slices in batches(documents, settings):
        for tokens, labels in slices:
            assert tokens.shape == labels.shape
            counted.update(labels[labels != IGNORED].tolist())
    assert counted == Counter(int(token) for one in documents for token in one.tokens[one.own])


def test_the_model_has_about_a_million_parameters_and_a_row_per_token():
    model = build_model()
    assert 0.8e6 < sum(weight.numel() for weight in model.parameters()) < 1.2e6
    assert model.config.vocab_size == CODEC.vocab_size
