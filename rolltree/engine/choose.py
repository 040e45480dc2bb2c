"""Which engine samples a policy, by the word given on the command line: local, vllm, or a server's address."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

from rolltree.engine.protocol import Engine, EngineError, OwnEngine, Sampling
from rolltree.policy.device import Placement, place
from rolltree.policy.formats import Precision
from rolltree.policy.load import LoadedModel, check_writes_tokens, load_codec, load_model
from rolltree.policy.lora import holds_adapters, whole_model
from rolltree.policy.models import model_folder, own_loader
from rolltree.policy.size import check_sampled, size_in
from rolltree.registry import Registry


class MakeEngine(Protocol):
    """Makes an engine on a model. It may ignore the distribution most requests will have, and `lockstep`."""

    def __call__(
        self, model: str | Path | LoadedModel, *, version: int, sampling: Sampling | None, lockstep: bool,
        placement: Placement, **more: Any,
    ) -> Engine:  # fmt: skip
        """An engine whose weights have this version, computing there; `more` is what only some engines know."""
        ...


ABOUT = """What samples the policy: local (this process), vllm (in this process too; vllm-ipc hands weights over
on the card, vllm-nccl across cards, and vllm-shared sleeps on the one card while the trainer learns), or the address of
a server that serves it, such as http://127.0.0.1:8000; of several, with commas between them."""


async def choose_engine(
    name: str, model: str | Path | LoadedModel, *, version: int = 0, sampling: Sampling | None = None,
    updates: bool = False, lockstep: bool = False, placement: Placement | None = None, speculate: str = "off",
    precision: Precision = "full",
    lora: int = 0,
) -> Engine:  # fmt: skip
    """An engine on a model. `sampling` is the distribution most requests will have; `updates` says weights will be
    updated.

    `placement` says where it computes and in which type, on the processor in float32 when left out.

    `lockstep` is for the local engine: it waits for what the end of a run brings about (see `LocalEngine`). So is
    `speculate`: off, or how to guess ahead (see `rolltree.engine.local.speculate.Speculation`), as suffix:6.

    `precision` rounds the local engine's weights (see `rolltree.policy.precision`).

    `lora` is the rank of the adapters that the updates change; vLLM then gets these alone.

    Optional parts are imported here only, and their absence is one sentence.
    """
    if speculate != "off" and name != "local":
        raise EngineError(
            f"--speculate {speculate} is for --engine local, not {name}; let that engine speculate by its own settings"
        )
    if precision != "full" and name != "local":
        raise EngineError(
            f"--engine-precision {precision} is for --engine local, not {name}; let that engine round by itself"
        )
    served = name.startswith(("http://", "https://"))
    if served or name in VLLM:
        who = f"the engine {name} is" if not served else f"the server {name} is"
        check_writes_tokens(model, who, "sample it with --engine local")
    if served:
        engine = await _server(name, model, version)
    else:
        make = ENGINES.find(name)
        there = placement or place("cpu")
        more: dict[str, Any] = {} if speculate == "off" else {"speculate": speculate}
        if precision != "full":
            more["precision"] = precision
        if lora and name == "vllm":
            more["lora"] = lora
        engine = make(model, version=version, sampling=sampling, lockstep=lockstep, placement=there, **more)
    if updates and engine.capabilities.lacking(frozenset({"update"})):
        await engine.close()
        raise EngineError(
            f"the engine {name} takes no new weights, so it cannot be trained against; start vLLM on this machine "
            "with VLLM_SERVER_DEV_MODE=1, or use --engine vllm or --engine local"
        )
    return engine


async def _server(address: str, model: str | Path | LoadedModel, version: int) -> Engine:
    from rolltree.engine.http import connect

    codec = model.codec if isinstance(model, LoadedModel) else load_codec(model_folder(str(model)))
    return await connect(address, codec, version=version)


def _local(
    model: str | Path | LoadedModel, *, version: int, lockstep: bool, placement: Placement, speculate: str = "off",
    precision: Precision = "full", **_: Any,
) -> Engine:  # fmt: skip
    if not isinstance(model, LoadedModel):
        folder = model_folder(str(model))
        size = size_in(whole_model(folder))
        if size is not None:
            check_sampled(size, str(model), placement.device, placement.dtype)
    return local_engine(
        model, version=version, lockstep=lockstep, dtype=placement.dtype, device=placement.device, speculate=speculate,
        precision=precision,
    )  # fmt: skip


def local_engine(
    model: str | Path | LoadedModel, *, version: int = 0, speculate: str = "off", precision: Precision = "full",
    **more: Any,
) -> Engine:  # fmt: skip
    """The engine in this process that samples a model: the one that it brings, else the local one."""
    loaded = model
    if not isinstance(model, LoadedModel) and own_loader(model_folder(str(model))) is not None:
        loaded = load_model(model)
    if isinstance(loaded, LoadedModel) and isinstance(loaded.model, OwnEngine):
        if speculate != "off":
            raise EngineError(f"--speculate {speculate} guesses tokens, and {loaded.name} writes latents; leave it out")
        if precision != "full":
            raise EngineError(f"--engine-precision {precision} is for language models, not {loaded.name}; leave it out")
        return loaded.model.engine(version)
    from rolltree.engine.local import LocalEngine
    from rolltree.engine.local.speculate import Speculation

    return LocalEngine(loaded, version=version, speculate=Speculation.of(speculate), precision=precision, **more)


def _vllm(
    model: str | Path | LoadedModel, *, version: int, sampling: Sampling | None, placement: Placement,
    weights: str = "files", lora: int = 0, sleep: bool = False, **_: Any,
) -> Engine:  # fmt: skip
    from rolltree.engine.segments.distribution import neutral
    from rolltree.engine.vllm.start import SMALL, require, start

    require()
    codec = model.codec if isinstance(model, LoadedModel) else load_codec(model_folder(str(model)))
    s = sampling or Sampling()
    # Of a large vocabulary the distribution is only known by vLLM's own word; of the policy itself its word says more.
    distribution = codec.vocab_size > SMALL and s.temperature > 0 and not neutral(s, codec.vocab_size)
    path = model.path if isinstance(model, LoadedModel) else model_folder(str(model))
    if holds_adapters(path):
        raise EngineError(f"vLLM loads whole models and {path} holds adapters; sample them with --engine local")
    dtype = str(placement.dtype).removeprefix("torch.")
    reports = "sampling" if distribution else "policy"
    return start(
        model, codec=codec, version=version, reports=reports, dtype=dtype, weights=weights, lora=lora, sleep=sleep
    )


VLLM: dict[str, MakeEngine] = {
    "vllm": _vllm,
    "vllm-ipc": partial(_vllm, weights="ipc"),
    "vllm-nccl": partial(_vllm, weights="nccl"),
    "vllm-shared": partial(_vllm, weights="ipc", sleep=True),
}
"""The ways to run vLLM in this process."""


def _given(_: str, value: Any) -> MakeEngine | None:
    return cast(MakeEngine, value) if callable(value) else None


def _built_in() -> dict[str, MakeEngine]:
    return {"local": _local} | VLLM


ENGINES = Registry[MakeEngine](
    "engine", "rolltree.engines", _built_in, lambda _: None, given=_given,
    hint="or the address of a server, such as http://127.0.0.1:8000",
)  # fmt: skip
"""What makes each engine, by name."""
