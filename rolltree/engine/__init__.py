"""How a policy is sampled: the contract, and the engines that keep it."""

from rolltree.engine.protocol import (
    Caches,
    Capabilities,
    Codec,
    Engine,
    EngineError,
    Generation,
    LogitsHook,
    Request,
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
    "Generation",
    "LogitsHook",
    "Request",
    "Sample",
    "Sampling",
    "Scored",
]
