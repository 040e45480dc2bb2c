"""Agents that are programs of their own, as tasks: they ask, the rollout answers."""
