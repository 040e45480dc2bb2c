"""Policies that write latents instead of tokens: denoisers, their engine, task, checks and pictures."""
