"""Attacks on Rolltree: seeded, resumable, counted. `python -m tests.attack --help`, or `make attack`."""
