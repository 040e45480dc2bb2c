"""Searches on exact problems, where every operator is known and nothing is sampled from a model."""
