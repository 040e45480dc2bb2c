"""The character tokenizer of the embedded policy: printable ASCII and the newline, one id each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast

from rolltree.tree.node import Array

SPECIAL = ("<pad>", "<eos>", "<unk>")
CHARACTERS = ("\n", *(chr(code) for code in range(32, 127)))


def build_tokenizer(max_length: int) -> PreTrainedTokenizerFast:
    """Every character is a token; anything beyond printable ASCII becomes `<unk>`."""
    vocabulary = {token: index for index, token in enumerate((*SPECIAL, *CHARACTERS))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
        padding_side="left",
    )


@dataclass(frozen=True)
class CharacterCodec:
    """The tokenizer behind the engine's `Codec` protocol."""

    tokenizer: PreTrainedTokenizerFast

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self.tokenizer)

    @property
    def eos_id(self) -> int:
        """The id that ends a text."""
        return SPECIAL.index("<eos>")

    def encode(self, text: str) -> list[int]:
        """Ids of a text, with no special tokens added."""
        return self.tokenizer.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int] | Array) -> str:
        """Text of ids; special tokens are dropped."""
        return str(self.tokenizer.decode([int(token) for token in ids], skip_special_tokens=True))
