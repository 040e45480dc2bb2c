"""The policy in the package: loads anywhere, knows its tasks, and is not certain of itself."""

import asyncio
import json

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForCausalLM, AutoTokenizer

from rolltree.policy.nano import FOLDER
from studies.lab.nano.corpus import NOISE, demonstrations, document
from studies.lab.nano.tokenizer import CHARACTERS, CharacterCodec, build_tokenizer


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(FOLDER).eval()


def test_the_shipped_tokenizer_is_the_one_the_corpus_was_written_with():
    shipped = AutoTokenizer.from_pretrained(FOLDER)
    text = "".join(CHARACTERS) + "<eos>  ok ."
    built = build_tokenizer(512)
    ids = shipped.encode(text, add_special_tokens=False)
    assert ids == built.encode(text, add_special_tokens=False)
    assert shipped.decode(ids) == text
    assert (shipped.eos_token_id, shipped.pad_token_id) == (1, 0)


def test_the_folder_is_small_and_says_how_it_was_made(model):
    assert (
        sum(weight.numel() for weight in model.parameters())
        == json.loads((FOLDER / "made.json").read_text())["parameters"]
    )
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 6e6
    assert all(bool(torch.isfinite(weight).all()) for weight in model.parameters())


@pytest.mark.parametrize("name", sorted(NOISE))
def test_it_predicts_noisy_play_of_new_items_and_keeps_some_doubt(model, name):
    """Far better than the unconditional letter guess (2 nats and more), yet never certain: its samples can differ."""
    codec = CharacterCodec(build_tokenizer(512))
    losses, entropies = [], []
    for transcript in asyncio.run(demonstrations(name, 16, seed=99)):
        made = document(transcript, codec)
        tokens = torch.from_numpy(made.tokens).long()[None]
        own = torch.from_numpy(made.own)[1:]
        with torch.no_grad():
            logits = model(input_ids=tokens[:, :-1]).logits[0]
        losses.append(cross_entropy(logits, tokens[0, 1:], reduction="none")[own])
        entropies.append(torch.distributions.Categorical(logits=logits).entropy()[own])
    assert torch.cat(losses).mean() < 1.2
    assert torch.cat(entropies).mean() > 0.05
