"""A policy in vLLM, run by this process."""

from rolltree.engine.vllm.start import start

__all__ = ["start"]
