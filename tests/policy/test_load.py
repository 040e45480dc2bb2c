"""Loading models by name, and what is said when that fails."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast
from transformers.models.llama import LlamaForCausalLM

from rolltree.errors import ModelError
from rolltree.policy import models as registry
from rolltree.policy.codec import HFCodec
from rolltree.policy.load import load_model, read_weights
from rolltree.policy.weights import load_weights

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


def reshape(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


def without(folder, *names, extra=None):
    state = {name: tensor for name, tensor in load_file(folder / "model.safetensors").items() if name not in names}
    save_file(state | (extra or {}), folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda f: without(f, "model.norm.weight"), r"lack 'model.norm.weight'; get"),
        (lambda f: without(f, *(f"model.layers.0.self_attn.{x}_proj.weight" for x in "qkvo")), "and 1 more"),
        (lambda f: reshape(f, num_hidden_layers=2), "names 2 layers and its weights have 1"),
        (lambda f: reshape(f, num_hidden_layers=10**9), "names 1000000000 layers"),
        (lambda f: reshape(f, vocab_size=10**8), "describes a model of 3,2.* numbers"),
        (lambda f: without(f, extra={"model.layers.1.mlp.up_proj.weight": torch.zeros(16, 16)}), "'model.layers.1.mlp"),
        (lambda f: (f / "config.json").write_text("[" * 200_000), "cannot be loaded"),
        (lambda f: (f / "config.json").write_text("[]"), "cannot be loaded"),
        (lambda f: reshape(f, num_attention_heads=0), "cannot be loaded"),
        (lambda f: reshape(f, hidden_act="nothing"), "cannot be loaded"),
        (lambda f: (f / "tokenizer.json").write_text("{}"), "cannot be loaded"),
    ],
    ids=["norm", "several", "layers", "many-layers", "vocabulary", "left-out", "deep", "list", "heads", "act", "empty"],
)
def test_a_folder_whose_weights_are_of_another_model_is_refused_by_name(folder, harm, words):
    harm(folder)
    with pytest.raises(ModelError, match=words) as caught:
        load_model(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tied_weights_are_written_once_and_missed_nowhere(tmp_path):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, bos_token_id=0, eos_token_id=0, tie_word_embeddings=True,
    )  # fmt: skip
    saved = LlamaForCausalLM(config)
    saved.save_pretrained(tmp_path)
    tokenizer(eos_token="<eos>").save_pretrained(tmp_path)
    assert "lm_head.weight" not in read_weights(tmp_path)
    loaded = load_model(tmp_path).model
    torch.nn.init.zeros_(loaded.model.norm.weight)
    load_weights(loaded, read_weights(tmp_path), tmp_path)
    for name, tensor in saved.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name


def test_weights_are_loaded_whole_or_not_at_all(folder):
    model, state = load_model(folder).model, read_weights(folder)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    odd = {name: tensor + 1 for name, tensor in state.items()}
    first, *_ = state
    for wrong, words in (
        ({k: v for k, v in odd.items() if k != first}, f"lack '{first}'"),
        (odd | {"other": torch.zeros(1)}, "hold 'other'"),
        (odd | {first: torch.zeros(3)}, "has shape"),
    ):
        with pytest.raises(ModelError, match=words):
            load_weights(model, wrong, folder)
        assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    load_weights(model, odd, folder)
    assert not torch.equal(model.state_dict()[first], before[first])


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
    entries["x"] = registry.ModelEntry("x", "", get=fail)
    monkeypatch.setattr(registry, "MODELS", entries)
    with pytest.raises(ModelError, match="line broke"):
        registry.get_model("x")
    assert not registry.present("x")
    assert list((tmp_path / "models").iterdir()) == []
    entries["x"] = registry.ModelEntry("x", "", get=succeed)
    assert registry.get_model("x") == registry.get_model("x") == tmp_path / "models" / "x"
    assert registry.present("x")
    assert len(calls) == 1
    with pytest.raises(ModelError, match="did you mean 'nano'"):
        registry.get_model("nan")
