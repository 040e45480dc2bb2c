"""Exact engines for tests of the gateway: a chat policy that writes letters, and one that writes what it is told."""

from rolltree.engine.tabular import TabularEngine
from rolltree.policy.codec import HFCodec
from tests.gateway.chats import tokenizer


def letters(template="hermes"):
    """Any letter, or the end of the turn once in eight tokens."""
    codec = HFCodec(tokenizer(template))
    chosen = {codec.encode(c)[0]: 0.125 for c in "abcdeé "} | {codec.eos_id: 0.125}
    row = [chosen.get(i, 0.0) for i in range(codec.vocab_size)]
    return TabularEngine(lambda prefix: row, codec)


def caller(call, answer, template="hermes", eos="<|im_end|>", heard="<tool_response>", max_context=4096):
    """Writes a call of a tool until a tool has answered (`heard`), then the answer."""
    codec = HFCodec(tokenizer(template, eos))
    begins = codec.encode("<|im_start|>assistant\n")

    def policy(prefix):
        start = max(i for i in range(len(prefix)) if list(prefix[i : i + len(begins)]) == begins) + len(begins)
        text = answer if heard in codec.decode(prefix) else call
        row = [0.0] * codec.vocab_size
        row[codec.encode(f"{text}<|im_end|>")[len(prefix) - start]] = 1.0
        return row

    return TabularEngine(policy, codec, max_context=max_context)


def endless(template="hermes"):
    """Never ends a turn."""
    codec = HFCodec(tokenizer(template))
    row = [1.0 if i == codec.encode("a")[0] else 0.0 for i in range(codec.vocab_size)]
    return TabularEngine(lambda prefix: row, codec, max_context=10**6)
