"""A policy served by an OpenAI-compatible server (vLLM, SGLang), token for token."""

from rolltree.engine.http.connect import connect

__all__ = ["connect"]
