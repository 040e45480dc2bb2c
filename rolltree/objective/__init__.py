"""Objectives: pure functions from a batch of packed trees to a scalar to minimise."""
