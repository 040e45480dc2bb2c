"""Rolltree: one rollout engine for reinforcement learning of language models."""

__version__ = "0.1.0"
