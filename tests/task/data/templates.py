"""Chat templates in the manner of the public ones: their turns, what they trim, and what they refuse."""

from dataclasses import dataclass

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

_CHATML_TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SMOLLM2 = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are a small helpful model.<|im_end|>\n{% endif %}"
    + _CHATML_TURNS
)
QWEN25 = (
    "{% if messages[0].role == 'system' %}<|im_start|>system\n{{ messages[0].content }}<|im_end|>\n"
    "{% else %}<|im_start|>system\nYou are a model.<|im_end|>\n{% endif %}"
    "{% for m in messages %}{% if not (loop.first and m.role == 'system') %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN3 = (
    "{% for m in messages %}{% set content = m.content %}"
    "{% if m.role == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
    "{% for m in messages %}{{ bos_token if loop.first else '' }}"
    "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% set told = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% set talk = messages[1:] if told else messages %}"
    "{% for m in talk %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ told + '\n\n' if told and loop.last else '' }}{{ m.content }}[/INST]"
    "{% else %} {{ m.content | trim }}</s>{% endif %}{% endfor %}"
)


@dataclass(frozen=True)
class Format:
    """A template with the special tokens of its tokenizer; the first ends a turn."""

    template: str
    specials: tuple[str, ...]
    bos: str = ""


FORMATS = {
    "smollm2": Format(SMOLLM2, ("<|im_end|>", "<|im_start|>", "<|endoftext|>")),
    "qwen2.5": Format(QWEN25, ("<|im_end|>", "<|im_start|>", "<|endoftext|>")),
    "qwen3": Format(QWEN3, ("<|im_end|>", "<|im_start|>", "<|endoftext|>")),
    "llama3": Format(
        LLAMA3, ("<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>"), "<|begin_of_text|>"
    ),
    "gemma": Format(GEMMA, ("<end_of_turn>", "<start_of_turn>", "<bos>"), "<bos>"),
    "mistral": Format(MISTRAL, ("</s>", "[INST]", "[/INST]", "<s>"), "<s>"),
}  # fmt: skip


def chat_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """A tokenizer of bytes and pairs with the specials and the template of a format."""
    form = FORMATS[name]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [("Ċ", "Ċ"), ("i", "n"), ("a", "b")]  # so that pieces may grow together where texts meet
    vocab = {piece: i for i, piece in enumerate([*alphabet, *("".join(pair) for pair in pairs)])}
    plain = Tokenizer(BPE(vocab, pairs))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    plain.decoder = decoders.ByteLevel()
    plain.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in form.specials])
    made = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token=form.specials[0], pad_token=form.specials[-1],
        clean_up_tokenization_spaces=False, **({"bos_token": form.bos} if form.bos else {}),
    )  # fmt: skip
    made.chat_template = form.template
    return made
