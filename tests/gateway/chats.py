"""A tokenizer with merges and three kinds of chat templates, and random chats over them."""

from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from tests.task.data.toy import HERMES, LLAMA

THINK = (
    "{% set ns = namespace(last=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}{% for t in tools or [] %}{{ t | tojson }}{% endfor %}{% for m in messages %}"
    "<|im_start|>{{ 'user' if m.role == 'tool' else m.role }}\n{% if m.role == 'assistant' and '</think>' in m.content "
    "and loop.index0 < ns.last %}{{ m.content.split('</think>')[-1] }}"
    "{% elif m.role == 'tool' %}<tool_response>{{ m.content }}</tool_response>{% else %}{{ m.content }}{% endif %}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | "
    "tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEMPLATES = {"hermes": HERMES, "llama": LLAMA, "think": THINK}
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|start|>", "<|end|>")


def tokenizer(template, eos="<|im_end|>"):
    """Bytes and some merges, so that most texts have several spellings."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {piece: i for i, piece in enumerate(alphabet)}
    merges = []
    for pair in ("th", "he", "in", "an", "er", "Ġt", "Ã©", "im", "nd", "_e", "ol", '":', '{"'):
        merges.append((pair[0], pair[1]))
        vocab[pair] = len(vocab)
    for left, right in (("th", "e"), ("Ġt", "he"), ("_e", "nd"), ("im", "_e")):
        merges.append((left, right))
        vocab[left + right] = len(vocab)
    plain = Tokenizer(BPE(vocab, merges))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    plain.decoder = decoders.ByteLevel()
    plain.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIALS])
    made = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token=eos, pad_token="<|endoftext|>", clean_up_tokenization_spaces=False
    )
    made.chat_template = TEMPLATES[template]
    return made


TOOLS = ({"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}},)
WORDS = (
    "the ",
    "in",
    "é",
    "日本",
    "🙂",
    "<|im_end|>",
    "<|im_start|>assistant\n",
    " x",
    "\n",
    '{"a": 1}',
    "<think>",
    "end",
)


def words(rng, most=6):
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(1, most)))


def sampled(rng, codec, tools):
    """A turn as a policy may write it: any tokens, spelled in any way, with or without its end."""
    kind = rng.random()
    if kind < 0.3:
        ids = [rng.randrange(256 + 17) for _ in range(rng.randrange(1, 12))]
    else:
        text = words(rng).replace("<|im_end|>", "").replace("<|im_start|>", "")
        if kind < 0.5:
            text = f"<think>{words(rng, 3)}</think>{text}"
        if tools and kind > 0.8:
            text += '<tool_call>{"name":"add",  "arguments":{"a":1}}</tool_call>' if kind > 0.9 else ""
            text = text if kind > 0.9 else '{"name": "add","parameters": {"b":  2}}'
        ids = [i for part in _pieces(rng, text) for i in codec.encode(part)]
        ids = [i for i in ids if i not in codec.specials]
    return ids + ([codec.eos_id] if rng.random() < 0.85 else [])


def _pieces(rng, text):
    """A text cut anywhere: encoded piece by piece it is spelled as no tokenizer would."""
    while text:
        count = rng.randrange(1, 6)
        yield text[:count]
        text = text[count:]
