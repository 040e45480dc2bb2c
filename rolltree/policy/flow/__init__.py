"""Policies that write latents: a flow model sampled step by step, with the density of every step."""
