"""Attacks on Rolltree: seeded, resumable, counted. `python -m attack --help`, or `make attack`."""
