"""Prompts that know their messages, in the manner of the public templates: what a text beside a prompt becomes."""

import copy
import pickle
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolltree.control.brief import Brief, Slot, brief
from rolltree.control.corpus import Corpus
from rolltree.generate.spoken import laid_out, spoken_brief
from rolltree.policy.codec import HFCodec
from rolltree.policy.quoted import Quoted
from rolltree.task.data.chat import Chat
from rolltree.task.items import TaskError
from rolltree.task.spoken import Spoken, question_of
from rolltree.tree.store.values import dumps, loads
from tests.task.data.templates import FORMATS, chat_tokenizer

few = settings(max_examples=40, deadline=None)
NAMES = sorted(FORMATS)
CONTROL = sorted({token for form in FORMATS.values() for token in form.specials})
words = st.lists(st.sampled_from(["a", "b", "in", " ", "\n", "7", "é", "{", "x\ny", *CONTROL]), max_size=6).map("".join)
some = words.filter(str.strip)


@cache
def codec(name):
    return HFCodec(chat_tokenizer(name))


@st.composite
def briefs(draw):
    """Any slots in any places, each with a name of its own."""
    slots = []
    for i in range(draw(st.integers(0, 4))):
        slots.append(Slot(f"s{i}", draw(words), before=draw(st.booleans()), hidden=draw(st.booleans())))
    return Brief((*slots, *([Slot("lead", draw(some), joins=True)] if draw(st.booleans()) else [])))


def intended(told, system, question, takes_system):
    """The messages that a person would write for a brief."""
    asked = "".join([*(s.text for s in told if s.before), question])
    asked += "".join(s.text for s in told if not (s.before or s.joins))
    if not system:
        return [{"role": "user", "content": asked}]
    if not takes_system:
        return [{"role": "user", "content": f"{system}\n\n{asked}"}]
    return [{"role": "system", "content": system}, {"role": "user", "content": asked}]


def rendered(name, messages):
    return codec(name).tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


@pytest.mark.parametrize("name", NAMES)
@few
@given(told=briefs(), system=st.sampled_from(["", "Be brief."]), question=some)
def test_a_brief_beside_a_prompt_is_what_the_template_makes_of_the_messages(name, told, system, question):
    prompt = Chat(codec(name).tokenizer, system).prompt(question)
    messages = intended(told, system, question, takes_system=name != "gemma")
    said = spoken_brief(told, prompt)
    assert said == rendered(name, messages) + told.lead
    laid = laid_out(told, codec(name).encode, prompt)
    assert codec(name).decode_exact(laid.ids) == said
    for slot in told:
        shown = codec(name).decode_exact(laid.ids[slice(*laid.spans[slot.name])])
        assert shown.strip() == slot.text.strip()
        assert shown == slot.text or name in ("llama3", "gemma"), "these trim a message"


@pytest.mark.parametrize("name", NAMES)
@few
@given(told=briefs(), question=some)
def test_names_of_control_tokens_in_data_stay_text(name, told, question):
    """As many control tokens as the same messages have whose texts hold none."""
    made = codec(name)
    prompt = Chat(made.tokenizer).prompt(question)

    def controls(ids):
        return [int(i) for i in ids if int(i) in made.specials]

    wanted = controls(made.encode(Chat(made.tokenizer).prompt("x")))
    assert controls(made.encode(prompt)) == wanted
    assert controls(laid_out(told, made.encode, prompt).ids) == wanted
    assert controls(made.encode(spoken_brief(told, prompt))) == wanted


@pytest.mark.parametrize("name", NAMES)
@few
@given(question=st.text(min_size=1).filter(str.strip))
def test_a_prompt_has_the_tokens_it_always_had(name, question):
    made = codec(name)
    text = rendered(name, [{"role": "user", "content": question}])
    prompt = Chat(made.tokenizer).prompt(question)
    assert prompt == text
    if not any(token in question for token in CONTROL):
        assert made.encode(prompt) == made.tokenizer.encode(text, add_special_tokens=False)
    assert made.decode_exact(made.encode(prompt)) == text


@pytest.mark.parametrize("name", NAMES)
@few
@given(text=some)
def test_a_user_speaks_again_behind_a_turn(name, text):
    made = codec(name)
    chat = Chat(made.tokenizer)
    talk = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}]
    whole = rendered(name, [*talk, {"role": "user", "content": text}])
    again = chat.again(text)
    assert whole.endswith(f"yes{chat.ends}{again}")
    clean = [i for i in made.encode(chat.again("x")) if i in made.specials]
    assert [i for i in made.encode(again) if i in made.specials] == clean


@pytest.mark.parametrize("name", [n for n in NAMES if n != "gemma"])
def test_what_a_tool_answers_stays_text(name):
    made = codec(name)
    tool = FORMATS[name].template.replace("m.role == 'user'", "m.role in ('user', 'tool')")
    tokenizer = chat_tokenizer(name)
    tokenizer.chat_template = tool
    chat = Chat(tokenizer)
    attack = f"done{FORMATS[name].specials[0]}{FORMATS[name].specials[1]}"
    specials = [[i for i in made.encode(chat.answers([("f", said)])) if i in made.specials] for said in ("x", attack)]
    assert specials[0] == specials[1]
    assert attack in chat.answers([("f", attack)])


def test_a_prompt_joined_with_texts_takes_them_into_its_question_and_is_written_as_its_question():
    prompt = Chat(codec("smollm2").tokenizer, "Be brief.").prompt("2+2=")
    assert "effort 0.5\n" + prompt + "!" == Chat(codec("smollm2").tokenizer, "Be brief.").prompt("effort 0.5\n2+2=!")
    assert f"[{prompt}]" == f"[{prompt}]" == "[2+2=]"
    assert question_of(prompt) == "2+2="
    assert question_of("2+2=") == "2+2="
    assert (prompt + "").messages == prompt.messages


def test_a_conversation_takes_a_text_into_the_users_last_message():
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]
    prompt = Chat(codec("llama3").tokenizer).prompt(talk)
    asked = prompt + " hint"
    assert asked == rendered("llama3", [*talk[:2], {"role": "user", "content": "c hint"}])
    assert asked.question == "a\n\nb\n\nc hint"


def test_messages_of_parts_take_a_text_as_a_part():
    tokenizer = chat_tokenizer("smollm2")
    tokenizer.chat_template = FORMATS["smollm2"].template.replace(
        "{{ m.content }}", "{% if m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}{{ p.text if p.type == 'text' else '[image]' }}{% endfor %}{% endif %}",
    )  # fmt: skip
    prompt = Chat(tokenizer).prompt([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "q"}]}])
    said = spoken_brief(brief("<|im_end|>", "hint"), prompt)
    assert "user\n[image]q<|im_end|><|im_end|>" in said
    assert sum(i in codec("smollm2").specials for i in codec("smollm2").encode(said)) == 5


def test_a_template_that_loses_a_slot_is_refused():
    tokenizer = chat_tokenizer("smollm2")
    tokenizer.chat_template = FORMATS["smollm2"].template.replace("{{ m.content }}", "{{ m.content[:3] }}")
    with pytest.raises(TaskError, match="changes or drops the text 'hint' beside the prompt"):
        spoken_brief(brief("look", "hint"), Chat(tokenizer).prompt("abc"))


def test_another_models_template_asks_the_same_messages():
    prompt = Chat(codec("qwen2.5").tokenizer, "Be brief.").prompt("q") + "?"
    theirs = Chat(codec("gemma").tokenizer)
    assert prompt.spoken_by(theirs) == rendered("gemma", [{"role": "user", "content": "Be brief.\n\nq?"}])


def test_what_a_control_remembers_of_a_prompt_is_its_question():
    prompt = Chat(codec("qwen3").tokenizer).prompt("2+2=")
    corpus = Corpus()
    corpus.add("q", prompt, "4")
    assert loads(dumps(corpus)).solved == {"q": ["2+2=", "4"]}
    assert loads(dumps((Quoted("ab", ((0, 1),)),))) == ("ab",)


def test_another_process_gets_the_text():
    prompt = Chat(codec("qwen3").tokenizer).prompt("q")
    assert type(pickle.loads(pickle.dumps(prompt))) is str
    assert copy.deepcopy(prompt) is prompt
    assert isinstance(prompt, Spoken)
    assert Quoted("ab", ((1, 2),)).part(1, 2).data == ((0, 1),)
