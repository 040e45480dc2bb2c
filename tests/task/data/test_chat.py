"""Prompts in a chat template: what the policy is asked, what ends its turn, and what a template may not drop."""

import asyncio

import pytest

from rolltree.control.hints import solver
from rolltree.policy.codec import HFCodec
from rolltree.task.data.chat import Chat
from rolltree.task.items import TaskError
from rolltree.task.protocol import spoken_by
from rolltree.task.registry import load_task
from rolltree.training.prompt import prompt_of
from tests.task.data.toy import CHATML, HERMES, LLAMA, rows, sums, tokenizer


def spoken(path, template=CHATML, eos="<|im_end|>", **knobs):
    knobs = {"reward": "exact", **knobs}
    return spoken_by(load_task(path, **knobs), HFCodec(tokenizer(template, eos)))


def first(task):
    return next(task.items("train"))


def test_a_prompt_is_asked_in_the_template_with_the_system_message(tmp_path):
    path = rows(tmp_path / "p.jsonl", *({"prompt": "2+2=", "answer": 4, "split": s} for s in ("train",)))
    (tmp_path / "system.txt").write_text("Be brief.\n")
    assert first(spoken(path)).prompt == "<|im_start|>user\n2+2=<|im_end|>\n<|im_start|>assistant\n"
    for system in ("Be brief.", str(tmp_path / "system.txt")):
        asked = first(spoken(path, system=system)).prompt
        assert asked.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2+2=")
    assert first(spoken(path, chat="off")).prompt == "2+2="
    assert first(spoken_by(load_task(path, reward="exact"), HFCodec(tokenizer(None)))).prompt == "2+2="


def test_a_column_with_a_worked_solution_is_what_hints_show(tmp_path):
    path = rows(
        tmp_path / "s.jsonl", *({"prompt": f"{k}+1=", "answer": k + 1, "solution": f"{k} and 1"} for k in range(3))
    )
    made = spoken(path)
    item = first(made)
    assert solver(made)(item) == item.prompt.question.replace("+1=", " and 1")


def test_conversations_are_asked_as_they_are(tmp_path):
    talk = [{"role": "system", "content": "S"}, {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]  # fmt: skip
    path = rows(
        tmp_path / "c.jsonl", *({"prompt": [*talk[:3], {"role": "user", "content": x}], "answer": 1} for x in "cd")
    )
    asked = first(spoken(path, system="not this one")).prompt
    assert asked.startswith("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb")
    assert asked.endswith("<|im_end|>\n<|im_start|>assistant\n")
    with pytest.raises(TaskError, match="the prompt has 4 messages and nothing says how to write them"):
        first(load_task(path, reward="exact"))


def test_the_first_prompt_is_shown_token_by_token_with_special_tokens(tmp_path):
    made = spoken(sums(tmp_path / "s.jsonl"))
    shown = prompt_of(first(made), HFCodec(tokenizer()))
    assert "".join(token.text for token in shown.tokens) == first(made).prompt
    specials = [token.text for token in shown.tokens if token.special]
    assert specials == ["<|im_start|>", "<|im_end|>", "<|im_start|>"]


def test_a_task_in_other_processes_is_not_taken_out_of_its_wrapper(tmp_path):
    class Remote:
        def __init__(self, inner):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

    remote = Remote(spoken(sums(tmp_path / "s.jsonl")))
    assert spoken_by(remote, HFCodec(tokenizer())) is remote


@pytest.mark.parametrize(
    "template",
    [
        CHATML.replace("for m in messages", "for m in messages if m.role != 'system'"),
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHATML,
    ],
)
def test_where_a_template_has_no_system_message_its_text_begins_the_users(tmp_path, template):
    asked = first(spoken(sums(tmp_path / "s.jsonl"), template, system="Be brief.")).prompt
    assert asked.startswith("<|im_start|>user\nBe brief.\n\n")
    assert "system" not in asked


@pytest.mark.parametrize("template", [CHATML, HERMES, LLAMA])
def test_the_token_that_ends_a_turn_is_read_off_the_template(tmp_path, template):
    assert Chat(tokenizer(template)).ends == "<|im_end|>"
    path = sums(tmp_path / "s.jsonl")
    assert spoken(path, template).stop == ()
    assert spoken(path, template, eos="<|endoftext|>").stop == ("<|im_end|>",)


def test_rewards_read_the_text_without_the_end_of_the_turn(tmp_path):
    made = spoken(sums(tmp_path / "s.jsonl"), eos="<|endoftext|>")
    item = first(made)
    assert made.exact_text
    assert asyncio.run(made.verify(item, None, f"{item.answer}<|im_end|>")).score == 1
    assert asyncio.run(made.verify(item, None, f"<|im_start|>{item.answer}<|im_end|>")).score == 0


@pytest.mark.parametrize(
    ("template", "knobs", "says"),
    [
        (CHATML.replace("{% if add_generation_prompt %}", "{% if false %}"), {}, "has no generation prompt"),
        ("{{ raise_exception('no such role') }}", {}, "refuses the messages (user): TemplateError: no such role"),
        ("{% if add_generation_prompt %}x{% endif %}", {}, "drops the user's message"),
        (None, {"system": "S"}, "--system needs a chat template"),
        (CHATML, {"system": "S", "chat": "off"}, "--system needs the chat template: leave out --chat off"),
    ],
)  # fmt: skip
def test_a_template_that_cannot_ask_is_refused_in_one_sentence(tmp_path, template, knobs, says):
    with pytest.raises(TaskError) as error:
        spoken(sums(tmp_path / "s.jsonl"), template, **knobs)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
