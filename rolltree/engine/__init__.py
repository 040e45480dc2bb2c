"""How a policy is sampled: the contract, and the engines that keep it."""

from rolltree.engine.protocol import (
    Caches,
    Capabilities,
    Codec,
    Engine,
    EngineError,
    LogitsHook,
    Request,
    Run,
    Sample,
    Sampling,
    Scored,
)

__all__ = [
    "Caches",
    "Capabilities",
    "Codec",
    "Engine",
    "EngineError",
    "LogitsHook",
    "Request",
    "Run",
    "Sample",
    "Sampling",
    "Scored",
]
