"""Loading models by name, and what is said when that fails."""

import json

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast
from transformers.models.llama import LlamaForCausalLM

from rolltree.policy import models as registry
from rolltree.policy.codec import HFCodec
from rolltree.policy.errors import ModelError
from rolltree.policy.load import load_model, read_weights

TEXT = "the cat, 12 cats — né\n"


def tokenizer(**names):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: i for i, token in enumerate(["<eos>", *alphabet, "ca", "cat"])}
    bpe = Tokenizer(models.BPE(vocab=vocab, merges=[("c", "a"), ("ca", "t")]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens(["<eos>"])
    return PreTrainedTokenizerFast(tokenizer_object=bpe, **names)


@pytest.fixture
def folder(tmp_path):
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer(eos_token="<eos>").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_a_folder_loads_with_its_codec_and_weights(folder):
    loaded = load_model(folder)
    assert (loaded.path, loaded.codec.vocab_size, loaded.codec.eos_id) == (folder, 300, 0)
    assert loaded.model.dtype == torch.float32
    state = read_weights(folder)
    assert torch.equal(state["model.norm.weight"], loaded.model.state_dict()["model.norm.weight"])


def test_the_codec_returns_exact_text_without_special_tokens(folder):
    codec = load_model(str(folder)).codec
    ids = codec.encode(TEXT)
    assert codec.decode(ids) == TEXT
    assert codec.decode([0, *ids, 0]) == TEXT
    assert codec.encode("cat") == [258]
    assert codec.decode_many([ids, [258], []]) == [TEXT, "cat", ""]


def test_a_tokenizer_without_eos_is_refused():
    with pytest.raises(ModelError, match="names no eos"):
        HFCodec(tokenizer())


def test_an_unknown_name_suggests_the_near_one():
    with pytest.raises(ModelError, match="did you mean 'smollm2-135m'"):
        load_model("smollm-135m")
    with pytest.raises(ModelError, match="known: nano"):
        load_model("zzz")


def test_a_model_not_fetched_yet_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLTREE_HOME", str(tmp_path))
    with pytest.raises(ModelError, match="rolltree models get smollm2-135m"):
        load_model("smollm2-135m")


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def widen(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 32}))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "model.safetensors").unlink(), "no weights"),
        (lambda f: cut(f / "model.safetensors"), "corrupt or half-written"),
        (lambda f: (f / "model.safetensors").write_bytes(b""), "corrupt or half-written"),
        (lambda f: cut(f / "config.json"), "cannot be loaded"),
        (lambda f: cut(f / "tokenizer.json"), "cannot be loaded"),
        (lambda f: [p.unlink() for p in f.glob("tokenizer*")], "no tokenizer"),
        (widen, "cannot be loaded"),
    ],
    ids=["config", "weights", "half", "empty", "json", "tokenizer", "no-tokenizer", "shape"],
)
def test_a_broken_folder_is_one_clear_line(folder, harm, words):
    harm(folder)
    with pytest.raises(ModelError, match=words) as caught:
        load_model(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fetching_leaves_a_whole_folder_or_none(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLTREE_HOME", str(tmp_path))

    def fail(place):
        (place / "config.json").write_text("{}")
        raise ModelError("the line broke")

    calls = []

    def succeed(place):
        calls.append(place)
        (place / "config.json").write_text("{}")

    entries = dict(registry.MODELS)
    entries["x"] = registry.ModelEntry("x", "", packaged=False, get=fail)
    monkeypatch.setattr(registry, "MODELS", entries)
    with pytest.raises(ModelError, match="line broke"):
        registry.get_model("x")
    assert not registry.present("x")
    assert list((tmp_path / "models").iterdir()) == []
    entries["x"] = registry.ModelEntry("x", "", packaged=False, get=succeed)
    assert registry.get_model("x") == registry.get_model("x") == tmp_path / "models" / "x"
    assert registry.present("x")
    assert len(calls) == 1
    with pytest.raises(ModelError, match="did you mean 'nano'"):
        registry.get_model("nan")
