"""The embedded policy: a Llama-architecture character model of about a million parameters, as a Hugging Face folder."""

from pathlib import Path

FOLDER = Path(__file__).parent
"""Where config.json, model.safetensors and the tokenizer lie."""
