"""The chat template of a real model (rolltree models get smollm2-135m)."""

import pytest

from rolltree.policy.load import load_codec
from rolltree.policy.models import model_folder, present
from rolltree.task.items import TaskError
from rolltree.task.protocol import spoken_by
from rolltree.task.registry import load_task
from rolltree.training.prompt import prompt_of
from tests.task.data.toy import sums

pytestmark = pytest.mark.model


@pytest.fixture
def codec():
    if not present("smollm2-135m"):
        pytest.skip("run rolltree models get smollm2-135m")
    return load_codec(model_folder("smollm2-135m"))


def test_it_is_asked_in_its_own_template(codec, tmp_path):
    task = spoken_by(load_task(sums(tmp_path / "s.jsonl"), reward="exact", system="Be brief."), codec)
    item = next(task.items("train"))
    question = item.prompt.split("user\n")[1].split("<|im_end|>")[0]
    assert item.prompt == (
        f"<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    )
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    told = codec.tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
    assert [token.id for token in prompt_of(item, codec).tokens] == list(told)
    assert (task.chat.ends, task.stop) == ("<|im_end|>", ())


def test_its_template_knows_no_tools(codec, tmp_path):
    (tmp_path / "tools.py").write_text('def add(a: int) -> int:\n    """Add."""\n    return a\n')
    task = load_task(sums(tmp_path / "s.jsonl"), reward="exact", tool=f"{tmp_path / 'tools.py'}:add")
    with pytest.raises(TaskError, match=r"smollm2-135m drops the tools \(add does not stand in the prompt\)"):
        spoken_by(task, codec)
