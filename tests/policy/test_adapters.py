"""Adapters of a folder are all there, or refused: one that is missing would add nothing without a word."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rolltree.errors import ModelError
from rolltree.policy.load import load_model
from rolltree.policy.lora import load_lora, save_weights, whole_model, with_lora
from tests.train.toy import tiny_policy

pytest.importorskip("peft")


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    policy, base, adapters = tiny_policy(), tmp_path / "base", tmp_path / "adapters"
    policy.model.save_pretrained(base)
    policy.codec.tokenizer.save_pretrained(base)
    wrapped = with_lora(load_model(base).model, rank=2, alpha=4, targets=["q_proj", "v_proj"])
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    wrapped.save_pretrained(adapters)
    return base, adapters


def without_one(adapters: Path) -> str:
    file = adapters / "adapter_model.safetensors"
    state = load_file(file)
    name = sorted(state)[-1]
    save_file({key: value for key, value in state.items() if key != name}, file, metadata={"format": "pt"})
    return name


def test_merging_and_resuming_refuse_adapters_that_are_not_all_there(folders: tuple[Path, Path]) -> None:
    base, adapters = folders
    whole = load_model(adapters).model
    assert not torch.equal(*(m.model.layers[0].self_attn.q_proj.weight for m in (whole, load_model(base).model)))
    name = without_one(adapters)
    with pytest.raises(ModelError, match=f"lack '{name}'"):
        load_model(adapters)
    wrapped = with_lora(load_model(base).model, rank=2, alpha=4, targets=["q_proj", "v_proj"])
    with pytest.raises(ModelError, match=f"lack '{name}'"):
        load_lora(wrapped, adapters)


def test_adapters_of_another_rank_are_refused(folders: tuple[Path, Path]) -> None:
    base, adapters = folders
    other = with_lora(load_model(base).model, rank=3, alpha=4, targets=["q_proj", "v_proj"])
    with pytest.raises(ModelError, match="another rank"):
        load_lora(other, adapters)
    shutil.rmtree(adapters)


def test_adapters_that_were_trained_on_adapters_keep_them(folders: tuple[Path, Path], tmp_path: Path) -> None:
    base, first = folders
    wrapped = with_lora(load_model(first).model, rank=1, alpha=2, targets=["k_proj"])
    second = tmp_path / "second"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_weights(wrapped, second)
    assert whole_model(second) == base.resolve()
    below, above = (load_model(place).model.state_dict() for place in (first, second))
    assert all(torch.equal(below[name], above[name]) for name in below)


def test_adapters_of_themselves_are_refused(folders: tuple[Path, Path]) -> None:
    _, adapters = folders
    config = adapters / "adapter_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "base_model_name_or_path": str(adapters)}))
    with pytest.raises(ModelError, match="belong to themselves"):
        load_model(adapters)


def test_wrapping_a_model_repeats_no_warning_of_libraries(folders: tuple[Path, Path]) -> None:
    base, adapters = folders
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with_lora(load_model(base).model, rank=2, alpha=4, targets=["q_proj"])
        load_model(adapters)
