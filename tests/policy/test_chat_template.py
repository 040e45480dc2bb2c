"""A chat template of one's own beside a model: `--chat-template FILE`."""

import json
import sys
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rolltree.cli import main
from rolltree.errors import ModelError
from rolltree.policy.chat_template import GIVEN, give_template, told_of_template
from rolltree.policy.load import load_codec, load_model
from tests.task.data.toy import CHATML, HERMES, rows, tokenizer

TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
AGENT = f"""
import json, os
from urllib.request import Request, urlopen
body = json.dumps({{"messages": [{{"role": "user", "content": "hi"}}], "tools": [{json.dumps(TOOL)}]}}).encode()
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
with urlopen(Request(url, body, {{"Content-Type": "application/json"}})) as answer:
    print(json.load(answer)["choices"][0]["message"]["content"])
"""


def saved(place: Path) -> Path:
    """A model of a thousand weights whose template knows no tools."""
    made = tokenizer(CHATML)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(made), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=512, eos_token_id=made.eos_token_id, bos_token_id=None,
        pad_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(place)
    made.save_pretrained(place)
    return place


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(GIVEN, "null")
    monkeypatch.delenv(GIVEN)
    return saved(tmp_path / "model")


def test_the_policy_speaks_in_the_template_and_other_models_in_their_own(model, tmp_path):
    Path("mine.jinja").write_text(HERMES)
    other = saved(tmp_path / "other")
    assert told_of_template(model) == []
    give_template("model", Path("mine.jinja"))
    assert load_model(model).codec.tokenizer.chat_template == HERMES
    assert load_codec(model).tokenizer.chat_template == HERMES
    assert load_codec(other).tokenizer.chat_template == CHATML
    first = told_of_template(model)
    assert len(first) == 1
    assert told_of_template(other) == []
    Path("mine.jinja").write_text(HERMES + " ")
    give_template("model", Path("mine.jinja"))
    assert told_of_template(model) != first


@pytest.mark.parametrize(("content", "said"), [
    (None, "cannot be read: No such file"), (b"", "is empty"), (b"\xff\xfe\x00", "it is not UTF-8"),
    (b"a" * (2**20 + 1), "is larger than"), (b"{% for %}", "cannot write a user's message: TemplateSyntaxError"),
    (b"{{ raise_exception('no') }}", "cannot write a user's message: TemplateError: no"),
])  # fmt: skip
def test_a_file_that_is_no_template_is_refused_by_name(model, content, said):
    if content is not None:
        Path("bad.jinja").write_bytes(content)

    def load():
        give_template("model", Path("bad.jinja"))
        load_codec(model)

    with pytest.raises(ModelError, match=r"the chat template bad.jinja") as error:
        load()
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_latents_have_no_template(model):
    Path("mine.jinja").write_text(HERMES)
    with pytest.raises(ModelError, match="digits writes latents"):
        give_template("digits", Path("mine.jinja"))


def test_an_agent_with_tools_runs_once_the_policy_has_a_template_for_them(model, capsys):
    Path("agent.py").write_text(AGENT)
    Path("mine.jinja").write_text(HERMES)
    data = rows(Path("data.jsonl"), *({"question": f"{k}+1=", "answer": k + 1} for k in range(40)))
    asked = ["rollout", "grpo", "--policy", "model", "--task", data, "--agent", f"{sys.executable} agent.py",
             "--items", "1", "--group", "2", "--max-tokens", "8", "--out"]  # fmt: skip
    assert main([*asked, "first"]) == 2
    said = capsys.readouterr()
    assert said.err.strip().count("\n") == 0
    assert "the chat template of" in said.err
    assert "drops the tools (add does not stand in the prompt)" in said.err
    assert "--chat-template FILE" in said.err
    assert not Path("first").exists()
    assert main([*asked, "second", "--chat-template", "mine.jinja"]) == 0
    assert Path("second").exists()


def test_a_run_keeps_its_template_and_is_not_resumed_with_another(model, capsys):
    Path("mine.jinja").write_text(HERMES)
    Path("other.jinja").write_text(HERMES.replace("Tools: ", "Functions: "))
    data = rows(Path("data.jsonl"), *({"question": f"{k}+1=", "answer": k + 1} for k in range(40)))
    asked = ["train", "grpo", "--policy", "model", "--task", data, "--prompts", "1", "--group", "2", "--out", "run",
             "--eval-every", "0", "--doctor", "0", "--json", "--max-tokens", "4"]  # fmt: skip
    assert main([*asked, "--steps", "1", "--chat-template", "mine.jinja"]) == 0
    (kept,) = Path("run/checkpoints").glob("step-*")
    assert load_codec(kept).tokenizer.chat_template == HERMES
    capsys.readouterr()
    assert main([*asked, "--steps", "2", "--resume", "--chat-template", "other.jinja"]) == 2
    assert "chat template" in capsys.readouterr().err
    assert main([*asked, "--steps", "2", "--resume", "--chat-template", "mine.jinja"]) == 0
